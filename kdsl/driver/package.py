"""A lowered program as a bundle variant: its code, how to call it, what was decided about it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from attrs import frozen

from kdsl.bundle import manifest as m
from kdsl.bundle.machine import Machine
from kdsl.check.model import DTYPE_BYTES, GridLoop
from kdsl.driver.requirements import requirements
from kdsl.driver.versions import compilers_of, versions
from kdsl.lower.lowering import Lowering
from kdsl.lower.tir.function import Argument, workspace_axes
from kdsl.lower.toolchain import cc
from kdsl.plan.model import KernelPlan, Plan
from kdsl.syntax import nodes as n


def variant_id(key: str) -> str:
    """How a bundle calls the variant that was made for a content key."""
    return key[:16]


def variant_files(lowering: Lowering, key: str) -> tuple[m.Variant, dict[str, bytes]]:
    """The variant `key` and its files by name in the bundle, without verdicts."""
    plan = lowering.plan
    identifier = variant_id(key)
    pack = PACKERS[plan.target.family]
    kernels, files = pack.kernels(lowering, identifier)
    layouts = plan.layouts
    variant = m.Variant(
        id=identifier,
        target=plan.target.name,
        machine=pack.machine(),
        dtypes=used_dtypes(lowering),
        options=dict(plan.specialization.options),
        sizes=dict(plan.specialization.sizes),
        form=dict(plan.point.form),
        choices=dict(plan.point.choices),
        requires=tuple(requirements(plan)),
        kernels=tuple(kernels),
        workspace=tuple(workspaces(plan)),
        unit_stride=tuple(name for name, layout in layouts.items() if layout == "unit_stride"),
        dense=tuple(name for name, layout in layouts.items() if layout == "dense"),
        alignment=alignment(plan),
    )
    return variant, files


def alignment(plan: Plan) -> dict[str, int]:
    """Bytes that ports must start at multiples of: those that kernels take in pieces."""
    return {
        port: max(kernel.aligned.get(port, 1) for kernel in plan.kernels)
        for port in plan.operator.ports
        if any(port in kernel.aligned for kernel in plan.kernels)
    }


def host_kernels(lowering: Lowering, identifier: str) -> tuple[list[m.Kernel], dict[str, bytes]]:
    """C functions in shared libraries, their source beside them."""
    kernels, files = [], {}
    for kernel, source, library in zip(lowering.plan.launches, lowering.sources, lowering.libraries):
        stem = f"{identifier}/{kernel.name}"
        files[f"{stem}.c"], files[f"{stem}.so"] = source.source.encode(), library
        kernels.append(
            m.Kernel(
                name=kernel.name, file=f"{stem}.so", symbol=source.symbol,
                arguments=tuple(argument(a) for a in source.arguments),
                grid={"tasks": grid_tasks(lowering.plan, kernel)},
            )
        )  # fmt: skip
    return kernels, files


def cuda_kernels(lowering: Lowering, identifier: str) -> tuple[list[m.Kernel], dict[str, bytes]]:
    """Device functions in cubins, their source beside them."""
    kernels, files = [], {}
    for kernel, source, objects in zip(lowering.plan.launches, lowering.sources, lowering.objects):
        stem = f"{identifier}/{kernel.name}"
        files[f"{stem}.cu"], files[f"{stem}.cubin"] = source.source.encode(), objects.cubin
        kernels.append(
            m.Kernel(
                name=kernel.name, file=f"{stem}.cubin", symbol=source.symbol,
                arguments=tuple(argument(a) for a in source.arguments), grid=grid_blocks(lowering.plan, kernel),
                launch="cuda", block=(*source.threads, 1, 1)[:3], shared_bytes=source.shared_bytes,
            )
        )  # fmt: skip
    return kernels, files


@frozen
class Packer:
    """How a target family's code goes into a bundle, and what machine it needs there."""

    kernels: Callable[[Lowering, str], tuple[list[m.Kernel], dict[str, bytes]]]
    machine: Callable[[], Machine | None]


PACKERS = {
    "cpu": Packer(host_kernels, lambda: cc.find().machine),
    "cuda": Packer(cuda_kernels, lambda: None),
}


def grid_blocks(plan: Plan, kernel: KernelPlan) -> dict[str, str]:
    """Blocks along each axis, as expressions of sizes."""
    axes = {axis: " * ".join(loop_extent(plan, loop) for loop in loops) for axis, loops in kernel.grid}
    return {axis: axes.get(axis, "1") for axis in ("x", "y", "z")}


def argument(a: Argument) -> m.Argument:
    return {
        "tensor": lambda: m.TensorArgument(a.name, a.dtype),
        "workspace": lambda: m.WorkspaceArgument(a.name),
        "stride": lambda: m.StrideArgument(a.name, a.axis),
        "size": lambda: m.SizeArgument(a.name),
        "given": lambda: m.GivenArgument(a.name),
        "scalar": lambda: m.ScalarArgument(a.name, a.dtype),
        "grid_begin": m.GridBegin,
        "grid_end": m.GridEnd,
    }[a.kind]()


def grid_tasks(plan: Plan, kernel: KernelPlan) -> str:
    """How many tasks the grid has, as an expression of sizes."""
    return " * ".join(loop_extent(plan, loop) for _, loops in kernel.grid for loop in loops) or "1"


def loop_extent(plan: Plan, loop: GridLoop) -> str:
    """How many values, tiles or slots of an index a grid enumerates, as an expression of sizes."""
    declared = plan.operator.indices[loop.index]
    if loop.within is not None:  # no slot where the index that shares them has no value
        values = expression(plan.operator.indices[loop.within].extent, plan)
        return f"({expression(declared.slots, plan)}) * min({values}, 1)"
    extent = f"({expression(declared.most or declared.extent, plan)})"
    return f"({extent} / {loop.tile})" if loop.tile > 1 else extent


def used_dtypes(lowering: Lowering) -> dict[str, str]:
    """Dtypes of the tensors that some kernel takes, in the operator's order."""
    used = {a.name for source in lowering.sources for a in source.arguments if a.kind == "tensor"}
    plan = lowering.plan
    return {name: plan.specialization.dtypes[name] for name in plan.operator.ports if name in used}


def workspaces(plan: Plan) -> Iterator[m.Workspace]:
    """Tensors that pass from kernel to kernel, each once, with its bytes as an expression of sizes."""
    tensors = {t.name: t for kernel in plan.launches for t in kernel.tensors.values() if t.scope == "call"}
    for tensor in tensors.values():
        size = DTYPE_BYTES[tensor.dtype] * tensor.elements
        kept = workspace_axes(plan, tensor.steps)
        axes = " * ".join(f"({expression(index.slots or index.extent, plan)})" for index in kept)
        yield m.Workspace(tensor.name, tensor.dtype, f"{size} * {axes}")


def expression(expr: n.Expr, plan: Plan) -> str:
    """An expression of sizes with what the plan knows filled in."""
    if isinstance(expr, n.Name):
        return str(plan.settings.get(expr.text, expr.text))
    if isinstance(expr, n.Group):
        return f"({expression(expr.inner, plan)})"
    if isinstance(expr, n.Binary):
        return f"{expression(expr.left, plan)} {expr.operator} {expression(expr.right, plan)}"
    return expr.span.text


def manifest_of(plans: tuple[Plan, ...], variants: tuple[m.Variant, ...]) -> m.Manifest:
    """The manifest of variants of one rule."""
    plan, found = plans[0], versions()
    compiler, flags = compilers_of(p.target for p in plans)
    text = plan.rule.declaration.span.text
    return m.Manifest(
        kdsl=found["kdsl"],
        operator=plan.operator.name,
        rule=m.Rule(plan.rule.name, _relative(plan), hashlib.sha256(text.encode()).hexdigest()),
        made_with=m.MadeWith(found["python"], found["tvm"], found["tvm_ffi"], compiler, flags),
        variants=variants,
    )


def _relative(plan: Plan) -> str:
    """The rule's file without the folders that only this machine has."""
    parts = plan.rule.declaration.span.path.replace("\\", "/").split("/")
    return "/".join(parts[parts.index("rules") :]) if "rules" in parts else parts[-1]
