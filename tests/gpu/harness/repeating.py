"""The same call a thousand times, and the same call out of a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from harness.outcome import Checks, Context
from kdsl import kda
from kdsl.bench.cases import decode_tensors
from kdsl.bench.device import captured, poison
from kdsl.bench.outcome import Outcome, Skip, Unknown

REPETITIONS = 1000
QUICK_REPETITIONS = 100
HOST_REPETITIONS = 5
LENGTHS = (130, 0, 700, 64, 1, 333)
MORE_LENGTHS = (1, 333, 64, 700, 130, 0)
HEADS = 16

Results = tuple[Any, ...]


def chunk_repeats(context: Context) -> Checks:
    """For kda.chunk_forward."""
    yield "repetitions bit for bit", partial(_chunk_repeated, context)
    yield "CUDA graph of chunk_kda", partial(_chunk_graph, context)


def decode_repeats(context: Context) -> Checks:
    """For kda.decode."""
    yield "repetitions bit for bit", partial(_decode_repeated, context)
    yield "CUDA graph of fused_recurrent_kda", partial(_decode_graph, context)


def _arguments(context: Context, key: int = 60, lengths: tuple[int, ...] = LENGTHS) -> dict[str, Any]:
    """Arguments of chunk_kda with more heads than the probes have: several blocks on a multiprocessor."""
    heads = 2 if context.small else HEADS
    lengths = lengths[3:5] if context.small else lengths
    pairs = [
        context.random_call(context.rng(key, pair), sum(lengths), lengths=lengths) for pair in range(heads // 2)
    ]
    axes = {"q": 2, "k": 2, "v": 2, "g": 2, "beta": 2, "initial_state": 1, "A_log": 0, "dt_bias": 0}
    merged = {name: np.concatenate([call[name] for call in pairs], axis) for name, axis in axes.items()}
    return context.run.arguments(pairs[0] | merged)


def _chunk_repeated(context: Context) -> Outcome:
    arguments = _arguments(context)
    return _repeated(context, lambda: kda.chunk_kda(**arguments))


def _decode_repeated(context: Context) -> Outcome:
    rows, heads = (2, 2) if context.small else (64, HEADS)
    tensors = decode_tensors(context.device.torch, context.device.name, rows, heads, context.seed)
    pool = tensors.pop("pool")
    return _repeated(
        context, lambda: kda.fused_recurrent_kda(**tensors, initial_state=pool, output_final_state=True)
    )


def _bits(torch: Any, tensor: Any) -> Any:
    return tensor.view(torch.int16 if tensor.element_size() == 2 else torch.int32)


def _repeated(context: Context, call: Callable[[], Results]) -> Outcome:
    """Every repetition is compared on the device with the first, bit for bit; a copy beside every other one
    changes its timing.
    """
    torch, device = context.device.torch, context.device
    count = HOST_REPETITIONS if context.small else QUICK_REPETITIONS if context.quick else REPETITIONS
    with poison(True):
        first = [_bits(torch, result).clone() for result in call()]
        differs = torch.zeros(count, dtype=torch.bool, device=device.name)
        beside = torch.cuda.Stream() if device.is_gpu else None
        noise = torch.empty(16 << 20 if device.is_gpu else 16, dtype=torch.uint8, device=device.name)
        done = 0
        for turn in range(count):
            if beside is not None and turn % 2:
                with torch.cuda.stream(beside):
                    noise.add_(1)
            for result, needed in zip(call(), first, strict=True):
                differs[turn] |= (_bits(torch, result) != needed).any()
            done += 1
            if turn % 100 == 99:
                device.wait()
                if not context.seconds_left:
                    break
    wrong = differs.nonzero().flatten().tolist()
    numbers = {"repetitions": done, "different": len(wrong)}
    if wrong:
        detail = f"{len(wrong)} of {done} differ from the first, run {wrong[0] + 1} among them: a race"
        return Outcome(False, detail, numbers)
    if done < count:
        raise Unknown(f"{done} of {count} repetitions were made, all equal")
    return Outcome(True, f"{done} repetitions", numbers)


def _replays(context: Context, call: Callable[[], Results], refill: Callable[[int], None]) -> Outcome:
    """Replays on refilled inputs give what calls on them give."""
    torch = context.device.torch
    if not context.device.is_gpu:
        raise Skip("CUDA graphs need a GPU")
    with poison(True):
        refill(0)
        graph, results = captured(torch, call)
        for turn in (1, 2, 1):
            refill(turn)
            needed = [result.clone() for result in call()]
            for result in results:
                result.fill_(float("nan"))
            # After the NaN: a pool that is updated in place is a result and an input.
            refill(turn)
            graph.replay()
            context.device.wait()
            if not all(torch.equal(one, other) for one, other in zip(results, needed, strict=True)):
                return Outcome(False, f"replay {turn} differs from the call on the same inputs")
    return Outcome(True, "three replays on refilled inputs")


def _chunk_graph(context: Context) -> Outcome:
    contents = [
        _arguments(context, 61 + turn, lengths)
        for turn, lengths in enumerate((LENGTHS, MORE_LENGTHS, LENGTHS[::-1]))
    ]
    static = {
        name: value.clone() if hasattr(value, "clone") else value for name, value in contents[0].items()
    }

    def refill(turn: int) -> None:
        for name, value in contents[turn].items():
            if hasattr(value, "copy_"):
                static[name].copy_(value)

    return _replays(context, lambda: kda.chunk_kda(**static), refill)


def _decode_graph(context: Context) -> Outcome:
    torch, name = context.device.torch, context.device.name
    rows, heads = (2, 2) if context.small else (8, HEADS)
    static = decode_tensors(torch, name, rows, heads, context.seed)
    pool = static.pop("pool")
    table = torch.arange(rows, device=name)

    def refill(turn: int) -> None:
        fresh = decode_tensors(torch, name, rows, heads, context.seed + turn)
        pool.copy_(fresh.pop("pool"))
        table.copy_((torch.arange(rows, device=name) + turn) % rows)
        for key, value in fresh.items():
            if hasattr(value, "copy_"):
                static[key].copy_(value)

    def call() -> Results:
        options = {"ssm_state_indices": table, "inplace_final_state": True, "output_final_state": True}
        return kda.fused_recurrent_kda(**static, initial_state=pool, **options)

    return _replays(context, call, refill)
