"""How many bytes a kernel keeps in each memory, and in which tensors."""

from __future__ import annotations

from kdsl.check.model import DTYPE_BYTES
from kdsl.plan.model import KernelPlan, Tensor


def tensor_bytes(tensor: Tensor) -> int:
    rows = tensor.elements // tensor.shape[-1] if tensor.shape else 0
    return (tensor.elements + rows * tensor.pad) * DTYPE_BYTES[tensor.dtype] * tensor.ring


def kernel_bytes(kernel: KernelPlan, memory: str) -> dict[str, int]:
    """Bytes of every tensor that the kernel itself keeps in `memory`, largest first."""
    found = {
        t.name: tensor_bytes(t)
        for t in kernel.tensors.values()
        if t.memory == memory and t.scope not in ("call", "passed") and t.held_in == t.name
    }
    return dict(sorted(found.items(), key=lambda item: -item[1]))
