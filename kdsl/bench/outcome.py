"""What a check on a device comes back with, and how one is run so that nothing it does stops the others."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from kdsl.runtime.errors import NoVariant
from kdsl.validate.gpu_report import FAILED, PASSED, REFUSED, SKIPPED, UNKNOWN, Check


@attrs.frozen
class Outcome:
    """Whether a check passed; `detail` is one sentence, `numbers` what it rests on."""

    passed: bool
    detail: str = ""
    numbers: Mapping[str, Any] = attrs.field(factory=dict)


class Skip(Exception):
    """The check has no meaning here: on this device, or with what is installed."""


class Unknown(Exception):
    """The check could not be made."""


def run_check(
    section: str, bundle: str, name: str, check: Callable[[], Outcome], seconds_left: float = math.inf
) -> Check:
    """Run one check of a bundle, unless no time is left. Whatever it raises becomes its result."""
    begin = time.monotonic()
    found = {"section": section, "bundle": bundle, "name": name}
    if not seconds_left:
        return Check(**found, status=UNKNOWN, detail=f"not run: the time for {section} was up")
    try:
        outcome = check()
        status = PASSED if outcome.passed else FAILED
        return Check(
            **found, status=status, detail=outcome.detail, numbers=dict(outcome.numbers),
            seconds=time.monotonic() - begin,
        )  # fmt: skip
    except Skip as skip:
        return Check(**found, status=SKIPPED, detail=str(skip), seconds=time.monotonic() - begin)
    except NoVariant as refusal:
        status, detail, trace = REFUSED, "; ".join(map(_reason, refusal.refusals)) or str(refusal), ""
    except Unknown as failure:
        status, detail, trace = UNKNOWN, str(failure), ""
    except Exception as failure:
        status, detail, trace = FAILED, f"{type(failure).__name__}: {failure}", traceback.format_exc()
    return Check(**found, status=status, detail=detail, seconds=time.monotonic() - begin, traceback=trace)


def _reason(refusal: str) -> str:
    """A refusal without the path of the bundle."""
    return refusal.partition(" variant ")[2] or refusal
