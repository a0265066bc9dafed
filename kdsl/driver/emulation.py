"""CUDA rules on the emulator: a call as launches of the generated source, with its tensors as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from kdsl.bundle.expression import parse_number
from kdsl.driver.compile import plan_of
from kdsl.driver.package import grid_blocks, workspaces
from kdsl.emulate.launches import Buffer, Launch
from kdsl.emulate.program import Bound
from kdsl.lower.cuda import CudaSource
from kdsl.lower.lowering import Lowering
from kdsl.lower.tir.function import Argument
from kdsl.plan.model import KernelPlan, Plan
from kdsl.plan.specialize import SettingRefused, allowed, parse_setting, specialize
from kdsl.validate.call import output_shapes, state_v_first

NUMPY = {"bf16": np.uint16, "f16": np.float16, "f32": np.float32, "i32": np.int32, "i64": np.int64}
NAN = {"bf16": 0x7FC0}


@frozen(eq=False)
class Operands:
    """What a call gives the kernels: arrays by port with their roles, sizes, scalars."""

    arrays: Mapping[str, np.ndarray]
    roles: Mapping[str, str]
    sizes: Mapping[str, int]
    scalars: Mapping[str, float]
    transposed: bool  # states are [.., V, K] in the call


@frozen(eq=False)
class LoweredProgram:
    """A lowered CUDA rule as `kdsl.emulate` tries it."""

    lowering: Lowering

    @property
    def operator(self) -> str:
        return self.lowering.plan.operator.name

    @property
    def settings(self) -> dict[str, object]:
        """What it was lowered for: options, dtypes and sizes by name."""
        special = self.lowering.plan.specialization
        return {**special.dtypes, **special.options, **special.sizes}

    def bind(self, call: Mapping[str, Any], final_state: bool = True) -> Bound:
        """The launches of a call (`kdsl.validate.call` for the chunk operator, the oracle's for decode), which may want
        no final state."""
        operands = self.operands(call)
        if not final_state:
            arrays = {name: array for name, array in operands.arrays.items() if name != "final_state"}
            operands = evolve(operands, arrays=arrays)
        buffers = {name: Buffer(array, operands.roles[name], name) for name, array in operands.arrays.items()}
        spaces = self.workspaces(operands.sizes)
        launches = []
        for kernel, source in zip(self.lowering.plan.launches, self.lowering.sources):
            grid = grid_blocks(self.lowering.plan, kernel)
            extents = tuple(int(parse_number(grid[axis]).evaluate(operands.sizes)) for axis in ("x", "y", "z"))
            if 0 not in extents:
                launches.append(self.launch(kernel, source, extents, buffers, spaces, operands))
        state = operands.arrays.get("final_state", operands.arrays.get("pool", np.zeros(0, np.float32)))
        return Bound(tuple(launches), operands.arrays["o"], kernel_state(state, operands.transposed))

    def operands(self, call: Mapping[str, Any]) -> Operands:
        return OPERANDS[self.operator](call, self.lowering.plan.specialization.dtypes)

    def workspaces(self, sizes: Mapping[str, int]) -> dict[str, Buffer]:
        found = {}
        for space in workspaces(self.lowering.plan):
            count = int(parse_number(space.bytes).evaluate(sizes)) // np.dtype(NUMPY[space.dtype]).itemsize
            found[space.name] = Buffer(poisoned((count,), space.dtype), "workspace", space.name)
        return found

    def launch(self, kernel: KernelPlan, source: CudaSource, grid, buffers, spaces, operands: Operands) -> Launch:
        values = [self.value(a, buffers, spaces, operands) for a in source.arguments]
        block = (*source.threads, 1)[:3]
        return Launch(source.source, source.symbol, grid, block, source.shared_bytes, values)

    def value(self, a: Argument, buffers, spaces, operands: Operands):
        if a.kind == "tensor":
            return buffers[a.name] if a.name in buffers else Buffer(np.zeros(0, NUMPY[a.dtype]), "input", a.name)
        if a.kind == "workspace":
            return spaces[a.name]
        if a.kind == "stride":
            array = operands.arrays.get(a.name)
            return 0 if array is None else array.strides[a.axis] // array.itemsize
        if a.kind == "size":
            return operands.sizes[a.name]
        if a.kind == "given":
            return int(a.name in operands.arrays)
        return operands.scalars[a.name]


def poisoned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.full(shape, NAN.get(dtype, np.nan), NUMPY[dtype])


def kernel_state(array: np.ndarray, transposed: bool) -> np.ndarray:
    """A state [.., V, K] as the kernel sees it: [.., K, V] over the same memory."""
    return np.swapaxes(array, -1, -2) if transposed and array.ndim > 1 else array


def chunk_operands(call: Mapping[str, Any], dtypes: Mapping[str, str]) -> Operands:
    q, v, cu = call["q"], call["v"], call.get("cu_seqlens")
    batch, tokens, heads, keys = q.shape
    transposed = state_v_first(call)
    arrays = {name: call[name] for name in ("q", "k", "v", "g", "beta")}
    for name in ("A_log", "dt_bias"):
        if call.get(name) is not None:
            arrays[name] = np.ascontiguousarray(call[name], np.float32)
    if "dt_bias" in arrays:
        arrays["dt_bias"] = arrays["dt_bias"].reshape(v.shape[2], keys)
    if call.get("initial_state") is not None:
        arrays["initial_state"] = kernel_state(call["initial_state"], transposed)
    if cu is not None:
        arrays["cu_seqlens"] = np.ascontiguousarray(cu, np.int64)
    o_shape, state_shape = output_shapes(call)
    arrays["o"] = poisoned(o_shape, dtypes["o"])
    arrays["final_state"] = kernel_state(poisoned(state_shape, dtypes["final_state"]), transposed)
    roles = {name: "output" if name in ("o", "final_state") else "input" for name in arrays}
    sequences = batch if cu is None else len(cu) - 1
    sizes = {"B": batch, "T": tokens, "H": heads, "HV": v.shape[2], "N": sequences, "K": keys, "V": v.shape[3]}
    scale = call.get("scale")
    scalars = {"scale": keys**-0.5 if scale is None else scale, "lower_bound": call.get("lower_bound") or 0.0}
    return Operands(arrays, roles, sizes, scalars, transposed)


def decode_operands(call: Mapping[str, Any], dtypes: Mapping[str, str]) -> Operands:
    q, v, pool = call["q"], call["v"], call["pool"]
    rows, tokens, heads, keys = q.shape
    transposed = bool(call.get("state_v_first", False))
    arrays = {name: call[name] for name in ("q", "k", "v", "g", "beta")}
    for name in ("A_log", "dt_bias"):
        if call.get(name) is not None:
            arrays[name] = np.ascontiguousarray(call[name], np.float32)
    arrays["pool"] = kernel_state(pool.copy(), transposed)
    columns = 1
    if call.get("ssm_state_indices") is not None:
        indices = np.ascontiguousarray(call["ssm_state_indices"], np.int64)
        arrays["ssm_state_indices"] = indices.reshape(rows, -1)
        columns = arrays["ssm_state_indices"].shape[1]
    if call.get("num_accepted_tokens") is not None:
        arrays["num_accepted_tokens"] = np.ascontiguousarray(call["num_accepted_tokens"], np.int64)
    arrays["o"] = poisoned(v.shape, dtypes["o"])
    roles = {name: {"o": "output", "pool": "updated"}.get(name, "input") for name in arrays}
    sizes = {"N": rows, "T": tokens, "H": heads, "HV": v.shape[2], "SLOTS": pool.shape[0], "W": columns, "K": keys,
             "V": v.shape[3]}  # fmt: skip
    scale = call.get("scale")
    scalars = {"scale": keys**-0.5 if scale is None else scale, "lower_bound": call.get("lower_bound") or 0.0}
    return Operands(arrays, roles, sizes, scalars, transposed)


OPERANDS = {"kda.chunk_forward": chunk_operands, "kda.decode": decode_operands}


def program(path: Path, target: str, settings: Mapping[str, object]) -> LoweredProgram:
    """The rule of a file lowered for `target`: `settings` are options, dtypes, sizes and choices by name.

    Of several rules the first that allows the settings. Raises ValueError with what stands in the way.
    """
    from kdsl.check import check_paths
    from kdsl.source.render.text import render_text

    result = check_paths([path])
    if not result.ok:
        raise ValueError(render_text(result.diagnostics))
    if target not in result.library.targets:
        raise ValueError(f"no target `{target}`; there are {', '.join(result.library.targets)}")
    rules = [r for r in result.library.rules.values() if target in r.targets and in_files(r, result.files)]
    if not rules:
        raise ValueError(f"{path} has no rule for {target}")
    return LoweredProgram(Lowering(plan_for(result.library, rules, target, settings)))


def in_files(rule, files) -> bool:
    return rule.declaration.span.path in set(files)


def plan_for(library, rules, target: str, settings: Mapping[str, object]) -> Plan:
    """The plan of the first rule that can be specialized to the settings and chosen as they say."""
    problems = []
    for rule in rules:
        operator = library.operators[rule.operator]
        options = {
            name: parse_setting(operator, name, str(value).lower() if isinstance(value, bool) else str(value))
            for name, value in settings.items()
            if name in operator.options and operator.options[name].kind != "scalar"
        }
        dtypes = {n: str(v) for n, v in settings.items() if n in operator.ports}
        sizes = {n: int(v) for n, v in settings.items() if n in operator.static_sizes}
        choices = {n: v for n, v in settings.items() if n in rule.choices}
        wrong = [n for n, v in options.items() if not allowed(rule, {n: v})]
        if wrong:
            problems.append(f"rule `{rule.name}` does not take {', '.join(f'{n} = {options[n]}' for n in wrong)}")
            continue
        try:
            return plan_of(library, rule.name, target, choices, specialize(operator, rule, dtypes, options, sizes))
        except SettingRefused as refusal:
            problems.append(f"rule `{rule.name}`: {refusal}")
    raise ValueError("; ".join(problems))
