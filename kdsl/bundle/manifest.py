"""The manifest of a bundle (`NAME.kdsb/manifest.json`, schema 1): what was built, from what, and how to call
it.

A bundle holds variants of one operator; a variant holds kernels in launch order; a kernel lists its arguments
in the order of its C function. Size expressions and claims stay text here; kdsl.bundle.expression reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from kdsl.bundle.machine import Machine

SCHEMA = 1
MANIFEST_NAME = "manifest.json"
DTYPES = ("bf16", "f16", "f32", "i32", "i64")
VERDICTS = ("holds", "fails", "unknown", "pending")
SAME_ALGORITHM = "same_algorithm"  # the clause that says so, and the evidence of a proof over finite fields
FIELD = "field"
EVIDENCE = ("proved", "field", "binary", "simulated", "measured", "unknown")
# The size expressions that each way of launching needs in `grid`.
LAUNCH_GRIDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"host_range": ("tasks",), "cuda": ("x", "y", "z")}
)
CUDA_TARGET = r"sm_[1-9][0-9]+[af]?"


def _frozen_mapping(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(mapping))


def _mapping(**options: Any) -> Any:
    return attrs.field(converter=_frozen_mapping, hash=False, **options)


@attrs.frozen
class Rule:
    """The rule a bundle was built from: its name, its file (relative) and the sha256 of the file's text."""

    name: str
    file: str
    sha256: str


@attrs.frozen
class MadeWith:
    """The versions that made the bundle; `flags` are the C or CUDA compiler's, in order."""

    python: str
    tvm: str
    tvm_ffi: str
    compiler: str
    flags: tuple[str, ...] = attrs.field(converter=tuple)


@attrs.frozen
class TensorArgument:
    """A pointer to the first element of a tensor; null if an optional tensor was not given."""

    name: str
    dtype: str
    kind: str = attrs.field(default="tensor", init=False)


@attrs.frozen
class WorkspaceArgument:
    """A pointer to a workspace of the variant, aligned to 64 bytes or more."""

    name: str
    kind: str = attrs.field(default="workspace", init=False)


@attrs.frozen
class StrideArgument:
    """int64: the stride of a tensor's axis, in elements; 0 for a tensor that was not given."""

    tensor: str
    axis: int
    kind: str = attrs.field(default="stride", init=False)


@attrs.frozen
class SizeArgument:
    """int64: a size of the call."""

    name: str
    kind: str = attrs.field(default="size", init=False)


@attrs.frozen
class GivenArgument:
    """int32: 1 if the optional tensor `name` was given, else 0."""

    name: str
    kind: str = attrs.field(default="given", init=False)


@attrs.frozen
class ScalarArgument:
    """A number of the call: f32 as float, f16 and bf16 not allowed, i32 and i64 as integers."""

    name: str
    dtype: str
    kind: str = attrs.field(default="scalar", init=False)


@attrs.frozen
class GridBegin:
    """int64: the first task to run."""

    kind: str = attrs.field(default="grid_begin", init=False)


@attrs.frozen
class GridEnd:
    """int64: one past the last task to run."""

    kind: str = attrs.field(default="grid_end", init=False)


Argument = (
    TensorArgument
    | WorkspaceArgument
    | StrideArgument
    | SizeArgument
    | GivenArgument
    | ScalarArgument
    | GridBegin
    | GridEnd
)


@attrs.frozen
class Kernel:
    """One entry point.

    `file` is relative to the bundle; `grid` maps names to size expressions; `launch` names the way it is
    called. "host_range" is a C function `void symbol(..., int64_t begin, int64_t end)` in a shared library
    that runs tasks [begin, end) of `tasks`. "cuda" is a `__global__` function in a cubin; `grid` has the
    blocks along x, y and z (a grid without blocks launches nothing), `block` the threads of a block along
    x, y and z, and `shared_bytes` its dynamic shared memory.
    """

    name: str
    file: str
    symbol: str
    arguments: tuple[Argument, ...] = attrs.field(converter=tuple)
    grid: Mapping[str, str] = _mapping()
    launch: str = "host_range"
    block: tuple[int, int, int] | None = attrs.field(
        converter=attrs.converters.optional(tuple), default=None
    )
    shared_bytes: int = 0


@attrs.frozen
class Workspace:
    """Memory that lives for one call. `bytes` is a size expression whose value is in bytes."""

    name: str
    dtype: str
    bytes: str


@attrs.frozen
class Requirement:
    """A claim over sizes that only the call can decide, and what to do where it does not hold
    (`otherwise`).
    """

    text: str
    otherwise: str


@attrs.frozen
class Verdict:
    """What is known about one clause of the rule's contract. `found` and `needed` are text, numbers or
    None.
    """

    clause: str
    verdict: str
    evidence: str
    found: str | int | float | bool | None = None
    needed: str | int | float | bool | None = None

    @property
    def proves(self) -> bool:
        """Whether it says that the code's schedule computes the operator, by a proof."""
        return (self.clause, self.verdict, self.evidence) == (SAME_ALGORITHM, "holds", FIELD)


@attrs.frozen
class Variant:
    """One compiled specialisation of the operator.

    `target` is "cpu" or a CUDA architecture such as "sm_90a"; `machine` is the host that the code needs, None
    for code that runs on a GPU beside any host. `dtypes` maps tensors to bf16, f16, f32, i32 or i64;
    `options` and `sizes` are fixed in the code; `form` and `choices` record the rule's; `requires` is decided
    at the call. `unit_stride` names the tensors whose last axis, as the kernel sees it, must have stride 1;
    `dense` those whose last two axes must lie without gaps, in the order that the option of their layout
    says; `alignment` maps a tensor to the number of bytes that its first element's address and all strides
    but that of 1 must be a multiple of.
    """

    id: str
    target: str
    machine: Machine | None
    dtypes: Mapping[str, str] = _mapping()
    options: Mapping[str, str | bool | int] = _mapping()
    sizes: Mapping[str, int] = _mapping()
    form: Mapping[str, Any] = _mapping()
    choices: Mapping[str, Any] = _mapping()
    requires: tuple[Requirement, ...] = attrs.field(converter=tuple, default=())
    kernels: tuple[Kernel, ...] = attrs.field(converter=tuple, default=())
    workspace: tuple[Workspace, ...] = attrs.field(converter=tuple, default=())
    verdicts: tuple[Verdict, ...] = attrs.field(converter=tuple, default=())
    unit_stride: tuple[str, ...] = attrs.field(converter=tuple, default=())
    dense: tuple[str, ...] = attrs.field(converter=tuple, default=())
    alignment: Mapping[str, int] = _mapping(factory=dict)

    @property
    def optional_tensors(self) -> frozenset[str]:
        """The tensors a call may leave out: those with a `given` argument."""
        return frozenset(
            argument.name
            for kernel in self.kernels
            for argument in kernel.arguments
            if isinstance(argument, GivenArgument)
        )

    @property
    def tensors(self) -> Mapping[str, str]:
        """Name to dtype of every tensor that a kernel takes, in order of first use."""
        return {
            argument.name: argument.dtype
            for kernel in self.kernels
            for argument in kernel.arguments
            if isinstance(argument, TensorArgument)
        }


@attrs.frozen
class Manifest:
    """A whole manifest. `files` maps relative paths to sha256 in hex; the writer of a bundle fills it in."""

    kdsl: str
    operator: str
    rule: Rule
    made_with: MadeWith
    variants: tuple[Variant, ...] = attrs.field(converter=tuple)
    files: Mapping[str, str] = _mapping(factory=dict)
    schema: int = SCHEMA
