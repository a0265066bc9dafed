"""Dtypes that a call decides: of tiles that are copied from a port, and of copies that go to one as they are."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from kdsl.check.model import Home, Kernel
from kdsl.plan.cuda.loads import is_load
from kdsl.plan.homes import rounded_name
from kdsl.plan.model import Tensor
from kdsl.plan.refusal import PlanRefused
from kdsl.plan.request import KernelRequest
from kdsl.plan.stages import stored_as_it_is


def with_port_dtypes(tensors: Mapping[str, Tensor], kernel: Kernel, request: KernelRequest) -> dict[str, Tensor]:
    """A view that is copied as it is has the dtype of its port; so have copies of it, and copies for stages that store
    them in a port, unless the rule says otherwise."""
    found = dict(tensors)
    for name, tensor in tensors.items():
        view = request.operator.views.get(name)
        if view is not None and "via" in kernel.homes[name].attributes:
            dtype = request.dtypes[view.port]
            if request.layouts.get(view.port) != "unit_stride" and not is_load(kernel.homes[name]):
                raise PlanRefused(
                    "D354", f"`{name}` is copied in pieces of `{view.port}`, whose last stride the rule does not claim",
                    kernel.homes[name].span,
                    help=(f"add `unit_stride({view.port})` to require",),
                )  # fmt: skip
            if kernel.homes[name].dtype not in (None, dtype):
                raise _wrong(kernel.homes[name], f"`{name}` is copied from `{view.port}`", view.port, dtype)
            found[name] = evolve(tensor, dtype=dtype)
    for home in (home for name, homes in kernel.views.items() if name in tensors for home in homes):
        port, copied = port_of_copy(home, kernel, request)
        if port is not None:
            dtype, name = request.dtypes[port], rounded_name(home.tensor, home)
            if home.dtype not in (None, "f32", dtype):
                raise _wrong(home, f"`{home.tensor}` for {', '.join(home.readers)} is copied {copied} `{port}`",
                             port, dtype)  # fmt: skip
            found[name] = evolve(found[name], dtype=home.dtype or dtype)
    return found


def port_of_copy(home: Home, kernel: Kernel, request: KernelRequest) -> tuple[str | None, str]:
    """The port that a copy for stages of the kernel comes from, or goes to as it is, and which of the two."""
    stages = [stage for stage in request.graph.stages if stage.name in home.readers]
    if len(stages) != len(home.readers):
        return None, ""
    view = request.operator.views.get(home.tensor)
    if view is not None:
        return (view.port, "from") if "via" in kernel.homes[home.tensor].attributes else (None, "")
    views = [request.operator.views.get(s.tensor) if stored_as_it_is(s) == home.tensor else None for s in stages]
    ports = {view.port if view is not None else None for view in views}
    return (ports.pop(), "to") if len(ports) == 1 else (None, "")


def _wrong(home: Home, what: str, port: str, dtype: str) -> PlanRefused:
    readers = f" for {', '.join(home.readers)}" if home.readers else ""
    return PlanRefused(
        "D347", f"{what}, which is {dtype} in this call", home.span, observed=str(home.dtype), required=dtype,
        help=(f"leave the dtype out: `{home.tensor}{readers} : in {home.memory} ...`",),
    )  # fmt: skip
