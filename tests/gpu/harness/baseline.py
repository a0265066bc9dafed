"""flash-linear-attention's KDA beside ours, where it is installed; it is the control in the same process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harness.outcome import Skip, Unknown

SIGMOID = "use_beta_sigmoid_in_kernel"
# Arguments without which FLA would compute something else.
ESSENTIAL = frozenset(("use_qk_l2norm_in_kernel", "use_gate_in_kernel", "A_log", "dt_bias", "lower_bound"))


def version() -> str:
    """FLA's version, or "" where it cannot be imported."""
    try:
        import fla
    except Exception:
        return ""
    return getattr(fla, "__version__", "unknown")


def function(name: str) -> Callable[..., Any]:
    """`fla.ops.kda.chunk_kda` or `fused_recurrent_kda`. Raises Skip where FLA is not installed."""
    try:
        import fla.ops.kda as ops
    except ImportError as failure:
        raise Skip(f"FLA is not installed: {failure}") from None
    except Exception as failure:
        raise Unknown(f"FLA's import failed: {type(failure).__name__}: {failure}") from failure
    return getattr(ops, name)


@contextmanager
def theirs() -> Iterator[None]:
    """An error of FLA's own within is no failure of ours: the time is unknown."""
    try:
        yield
    except (Skip, Unknown):
        raise
    except Exception as failure:
        raise Unknown(f"FLA failed: {type(failure).__name__}: {failure}") from failure


def arguments(called: Callable[..., Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """`tensors` and options for FLA's function, under the names that it has.

    Where it has no sigmoid of its own, beta comes after it (that is then not in its time). Raises Unknown if
    it lacks an option that the call needs.
    """
    parameters = inspect.signature(called).parameters
    known = set(parameters)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):  # FLA 0.6 reads these there
        known |= {"A_log", "dt_bias"}
    given = {name: value for name, value in tensors.items() if value is not None}
    if lacking := sorted((ESSENTIAL & given.keys()) - known):
        raise Unknown(f"this FLA's {called.__name__} does not have {', '.join(lacking)}")
    if given.get(SIGMOID) and SIGMOID not in known:
        given["beta"] = given["beta"].float().sigmoid().to(given["beta"].dtype)
    if "dt_bias" in given:
        given["dt_bias"] = given["dt_bias"].flatten()
    return {name: value for name, value in given.items() if name in known}
