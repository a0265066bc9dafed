"""A call as the choice of a variant sees it, and whether a variant takes it. A refusal is text, not an
exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from kdsl.bundle.errors import ExpressionError
from kdsl.bundle.expression import GIVEN, Expression
from kdsl.bundle.machine import Machine, shortfall
from kdsl.bundle.manifest import Variant
from kdsl.runtime.errors import ArgumentTypeError
from kdsl.runtime.targets import acceptable_targets
from kdsl.runtime.tensor import ITEM_BYTES, TensorView

STATES = ("initial_state", "final_state", "pool")
# Says how states lie in memory: K or V first. A variant that does not mention it takes both.
LAYOUT_OPTION = "state_v_first"


def _mapping(**options: Any) -> Any:
    return attrs.field(converter=lambda mapping: MappingProxyType(dict(mapping)), hash=False, **options)


@attrs.frozen
class CallRequest:
    """What a variant has to fit.

    `target` is the device's own ("cpu", "sm_90a"), though code for another target may run there; `dtypes` has
    every tensor that is given or asked for, outputs too; `options` the static options by name; `sizes` all
    sizes of the call; `given` the optional tensors with whether they are there; `scalars` its numbers. Raises
    ArgumentTypeError if the initial and the final state differ in dtype.
    """

    operator: str
    target: str
    dtypes: Mapping[str, str] = _mapping()
    options: Mapping[str, str | bool] = _mapping()
    sizes: Mapping[str, int] = _mapping()
    given: Mapping[str, bool] = _mapping()
    scalars: Mapping[str, float] = _mapping(factory=dict)

    def __attrs_post_init__(self) -> None:
        initial, final = self.dtypes.get("initial_state"), self.dtypes.get("final_state")
        if None not in (initial, final) and initial != final:
            raise ArgumentTypeError(
                "final_state",
                f"final_state as {final} with initial_state as {initial}",
                "one dtype for both",
                f"ask for the final state as {initial}, or convert initial_state to {final}",
            )

    def __str__(self) -> str:
        parts = [f"{name} {dtype}" for name, dtype in self.dtypes.items()]
        parts += [f"{name}={value}" for name, value in self.options.items()]
        parts += [f"{name} = {value}" for name, value in self.sizes.items()]
        return f"{self.operator} on {self.target} ({', '.join(parts)})"


@attrs.frozen(eq=False)
class Call:
    """A checked call: what CallRequest says, and the tensors and scalars themselves."""

    operator: str
    target: str
    tensors: Mapping[str, TensorView]
    options: Mapping[str, str | bool]
    sizes: Mapping[str, int]
    scalars: Mapping[str, float]
    given: Mapping[str, bool]

    @property
    def static_key(self) -> tuple[Any, ...]:
        """Equal for calls that differ only in what `dynamic_refusal` and `layout_refusal` look at."""
        sizes = self.sizes
        return (
            self.operator,
            self.target,
            sizes["K"],
            sizes["V"],
            tuple(self.options.values()),
            tuple([(name, view.dtype) for name, view in self.tensors.items()]),
        )

    @property
    def numbers(self) -> dict[str, float]:
        """What requirements speak of: sizes, scalars, and `given_x` for every optional tensor x."""
        given = {GIVEN + name: int(value) for name, value in self.given.items()}
        return {**self.sizes, **self.scalars, **given}

    def request(self) -> CallRequest:
        """The request that describes this call."""
        dtypes = {name: view.dtype for name, view in self.tensors.items()}
        return CallRequest(
            self.operator, self.target, dtypes, self.options, self.sizes, self.given, self.scalars
        )


def static_refusal(operator: str, variant: Variant, request: CallRequest, here: Machine) -> str:
    """Why a variant of a bundle for `operator` cannot take calls like `request` on the machine `here`, or
    "".
    """
    if operator != request.operator:
        return f"the call is {request.operator}, the bundle has {operator}"
    if variant.target not in acceptable_targets(request.target):
        return f"the call runs on {request.target}, the variant on {variant.target}"
    if reason := shortfall(variant.machine, here):
        return reason
    failed = [verdict.clause for verdict in variant.verdicts if verdict.verdict == "fails"]
    if failed:
        return f"its contract fails: {'; '.join(failed)}"
    return _option_refusal(variant, request) or _tensor_refusal(variant, request)


def _option_refusal(variant: Variant, request: CallRequest) -> str:
    for name, value in request.options.items():
        if name not in variant.options and name == LAYOUT_OPTION:
            continue  # built for every layout: strides carry it
        if name not in variant.options:
            return f"{name} is {value!r}, the variant does not say for which {name} it was built"
        if variant.options[name] != value:
            return f"{name} is {value!r}, the variant was built for {variant.options[name]!r}"
    for name, value in variant.options.items():
        if name not in request.options:
            return f"the variant was built for {name} = {value!r}, which {request.operator} does not have"
    return ""


def _tensor_refusal(variant: Variant, request: CallRequest) -> str:
    tensors, optional = variant.tensors, variant.optional_tensors
    for name, dtype in request.dtypes.items():
        if name not in tensors:
            return f"{name} is given, the variant takes none"
        if tensors[name] != dtype:
            return f"{name} is {dtype}, the variant was built for {tensors[name]}"
    for name in tensors:
        if name not in request.dtypes and name not in optional:
            return f"{name} is not given, the variant needs it"
    return ""


def dynamic_refusal(
    variant: Variant, claims: tuple[tuple[Expression, str], ...], numbers: Mapping[str, float]
) -> str:
    """Why a variant cannot take a call with these `numbers` (Call.numbers), or "". `claims` are its
    requirements, parsed, each with its remedy.
    """
    for name, built in variant.sizes.items():
        if numbers.get(name) != built:
            return f"{name} = {numbers.get(name, 'nothing')}, the variant was built for {name} = {built}"
    for claim, otherwise in claims:
        try:
            holds = claim.evaluate(numbers)
        except ExpressionError as failure:
            return f"requirement that cannot be decided: {failure}"
        if not holds:
            found = ", ".join(f"{name} = {numbers[name]}" for name in sorted(claim.names))
            return f"{found}, the variant needs {claim.text}: {otherwise}"
    return ""


def layout_refusal(variant: Variant, tensors: Mapping[str, TensorView]) -> str:
    """Why a variant cannot read tensors laid out like these, or "".

    Axes of length 1 have no stride, and a tensor without elements has no layout.
    """
    for name in variant.unit_stride:
        view = tensors.get(name)
        if view is not None and view.strides and view.strides[-1] != 1 and _extended(view, -1):
            found = f"{name} has strides {list(view.strides)}, the variant needs stride 1 on the last axis"
            return f"{found}: call {name}.contiguous(){_other_layout(name, view)}"
    for name in variant.dense:
        view = tensors.get(name)
        if view is not None and not _dense(view, bool(variant.options.get(LAYOUT_OPTION, False))):
            found = f"{name} has strides {list(view.strides)}, the variant needs"
            return f"{found} its last two axes without gaps: call {name}.contiguous()"
    for name, size in variant.alignment.items():
        view = tensors.get(name)
        if view is None or 0 in view.shape:
            continue
        if view.pointer % size:
            found = f"{name} starts {view.pointer % size} bytes past a multiple of {size}"
            return f"{found}, the variant needs it on one: call {name}.clone()"
        item = ITEM_BYTES[view.dtype]
        rows = max((axis for axis, stride in enumerate(view.strides) if stride == 1), default=None)
        for axis, stride in enumerate(view.strides):
            if axis != rows and stride * item % size and _extended(view, axis):
                found = f"{name} has strides {list(view.strides)} in elements of {item} bytes"
                needed = f"the variant needs all but that of 1 in multiples of {size} bytes"
                return f"{found}, {needed}: call {name}.contiguous(){_other_layout(name, view)}"
    return ""


def _dense(view: TensorView, v_first: bool) -> bool:
    """A state as the kernel sees it, [.., K, V]: rows without gaps, or columns if V comes first in memory."""
    if 0 in view.shape:
        return True
    keys, values = view.shape[-2:]
    return view.strides[-2:] == ((1, keys) if v_first else (values, 1))


def _extended(view: TensorView, axis: int) -> bool:
    return view.shape[axis] > 1 and 0 not in view.shape


def _other_layout(name: str, view: TensorView) -> str:
    if name in STATES and view.strides[-2] == 1:
        return ", and pass states as [.., K, V], without state_v_first"
    return ""
