"""The bundles at hand and the choice among them: registered ones first, in order, then those the compiler
made.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import attrs

from kdsl.bundle.expression import Expression, parse_claim
from kdsl.bundle.load import Bundle, load_bundle, read_bundle
from kdsl.bundle.machine import this_machine
from kdsl.bundle.manifest import SAME_ALGORITHM, Variant
from kdsl.runtime.errors import NoVariant
from kdsl.runtime.launch import Program, open_variant
from kdsl.runtime.request import Call, CallRequest, dynamic_refusal, layout_refusal, static_refusal
from kdsl.runtime.targets import acceptable_targets

BUNDLES_VARIABLE = "KDSL_BUNDLES"
PROVED_VARIABLE = "KDSL_PROVED"
_log = logging.getLogger("kdsl.kda")


@attrs.frozen(eq=False)
class Candidate:
    """A variant and its claims, parsed, each with its remedy."""

    bundle: Bundle
    variant: Variant
    claims: tuple[tuple[Expression, str], ...]

    @classmethod
    def of(cls, bundle: Bundle, variant: Variant) -> Candidate:
        """The candidate for a variant of a bundle."""
        return cls(
            bundle, variant, tuple((parse_claim(claim.text), claim.otherwise) for claim in variant.requires)
        )

    @property
    def name(self) -> str:
        """How messages name it."""
        return f"{self.bundle.path} variant {self.variant.id}"

    def refuses(self, request: CallRequest) -> str:
        """Why it takes no call of the request's static key, or ""."""
        return static_refusal(self.bundle.manifest.operator, self.variant, request, this_machine())

    def unproved(self) -> str:
        """Why it is not known by a proof to compute the operator, or ""."""
        if any(verdict.proves for verdict in self.variant.verdicts):
            return ""
        found = [v for v in self.variant.verdicts if v.clause == SAME_ALGORITHM]
        said = f"{found[0].verdict}: {found[0].found or 'undecided'}" if found else "no verdict in its manifest"
        return f"not proved to compute {self.bundle.manifest.operator} ({SAME_ALGORITHM}: {said})"

    def refuses_call(self, call: Call) -> str:
        """Why it does not take this call among those of its static key, or ""."""
        return dynamic_refusal(self.variant, self.claims, call.numbers) or layout_refusal(
            self.variant, call.tensors
        )


class Shelf:
    """The bundles of a process.

    `compile` makes a bundle for a request and returns its path, or None if there is no compiler.
    """

    def __init__(self, compile: Callable[[CallRequest], Path | None]) -> None:
        self._compile = compile
        self._registered: list[Bundle] = []
        self._from_environment: list[Bundle] = []
        self._environment = ""
        self._built: list[Bundle] = []
        self._candidates: dict[tuple, tuple[Candidate, ...]] = {}
        self._programs: dict[tuple[str, str], Program] = {}
        self._lock = threading.RLock()
        self._proved_only = False

    @property
    def proved_only(self) -> bool:
        """Whether only variants with a proof are taken."""
        return self._proved_only or os.environ.get(PROVED_VARIABLE, "") not in ("", "0")

    def accept_proved_only(self, on: bool) -> None:
        """Take only variants with a proof, or any. The environment variable KDSL_PROVED asks for the same."""
        self._proved_only = on

    def add(self, path: Path | str) -> Bundle:
        """Register the bundle at `path`, after those registered before. Raises BundleError."""
        bundle = load_bundle(path)
        with self._lock:
            _append(self._registered, bundle)
            self._candidates.clear()
        return bundle

    def clear(self) -> None:
        """Forget every bundle; KDSL_BUNDLES is read again at the next call."""
        with self._lock:
            self._registered.clear()
            self._from_environment.clear()
            self._environment = ""
            self._built.clear()
            self._candidates.clear()
            self._programs.clear()

    def pick(self, call: Call) -> Program:
        """The program for a call.

        Tries the variants at hand, then the compiler. Logs at INFO why a variant was refused. Raises
        NoVariant with every refusal; BundleError for a bad path in KDSL_BUNDLES; whatever the compiler
        raises.
        """
        program = self._at_hand(call)
        if program is not None:
            return program
        with self._lock:
            request = call.request()
            path = self._compile(request)
            if path is None:
                raise NoVariant(str(request), tuple(self._refusals(call)), _REMEDY)
            _append(self._built, load_bundle(path))
            self._candidates.clear()
            program = self._at_hand(call)
            if program is None:
                remedy = f"the compiler returned {path}, which does not take its own call; report this"
                if self.proved_only:
                    remedy = _UNPROVED
                elif any(layout_refusal(candidate.variant, call.tensors) for candidate in self._all()):
                    remedy = "no rule reads tensors laid out like these; do as the refusals above say"
                raise NoVariant(str(request), tuple(self._refusals(call)), remedy)
            return program

    def _at_hand(self, call: Call) -> Program | None:
        key = (call.static_key, self.proved_only)
        candidates = self._candidates.get(key)
        if candidates is None:
            candidates = self._admit(key, call.request())
        for candidate in candidates:
            reason = candidate.refuses_call(call)
            if not reason:
                return self._open(candidate)
            _log.info("%s refused: %s", candidate.name, reason)
        return None

    def _open(self, candidate: Candidate) -> Program:
        key = (candidate.bundle.digest, candidate.variant.id)
        program = self._programs.get(key)
        if program is None:
            with self._lock:
                if key not in self._programs:
                    self._programs[key] = open_variant(candidate.bundle, candidate.variant)
                program = self._programs[key]
        return program

    def _admit(self, key: tuple, request: CallRequest) -> tuple[Candidate, ...]:
        with self._lock:
            admitted = []
            for candidate in self._all():
                if reason := candidate.refuses(request) or self._doubts(candidate):
                    _log.info("%s refused: %s", candidate.name, reason)
                else:
                    admitted.append(candidate)
            # Best code first; among equals the order of registration stays.
            best = acceptable_targets(request.target).index
            admitted.sort(key=lambda candidate: best(candidate.variant.target))
            self._candidates[key] = tuple(admitted)
            return self._candidates[key]

    def _doubts(self, candidate: Candidate) -> str:
        return candidate.unproved() if self.proved_only else ""

    def _all(self) -> list[Candidate]:
        self._read_environment()
        bundles = [*self._registered, *self._from_environment, *self._built]
        return [Candidate.of(bundle, variant) for bundle in bundles for variant in bundle.manifest.variants]

    def _read_environment(self) -> None:
        text = os.environ.get(BUNDLES_VARIABLE, "")
        if text == self._environment:
            return
        found = [read_bundle(path) for path in text.split(os.pathsep) if path]
        self._from_environment = found
        self._environment = text

    def _refusals(self, call: Call) -> list[str]:
        request = call.request()
        return [
            f"{candidate.name}: {candidate.refuses(request) or candidate.refuses_call(call) or self._doubts(candidate)}"
            for candidate in self._all()
        ]


_UNPROVED = "`kdsl prove RULE` says what is missing; kdsl.kda.accept_proved_only(False) runs code without a proof"
_REMEDY = (
    f"build a bundle with `kdsl lower` and register it with kdsl.kda.use_bundle(path) or {BUNDLES_VARIABLE}, "
    "or install the compiler: pip install kdsl[compile]"
)


def _append(bundles: list[Bundle], bundle: Bundle) -> None:
    if all(bundle.digest != other.digest for other in bundles):
        bundles.append(bundle)
