"""The libraries that a latency may be held against, where they are installed: one entry each.

A library gets the tensors of the very call that the rule's own kernels are timed on, under its own names. What it
cannot compute is said, and the clause stays pending: a time of something else is no baseline.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

SIGMOID = "use_beta_sigmoid_in_kernel"
# What a library may not know without computing something else.
HARMLESS = frozenset(("safe_gate", "output_final_state", "inplace_final_state"))
MODULES = {"fla": ("fla.ops.kda", "flash-linear-attention"), "flashkda": ("flash_kda", "FlashKDA")}
FUNCTIONS = {"kda.chunk_forward": "chunk_kda", "kda.decode": "fused_recurrent_kda"}


@frozen
class NoBaseline(Exception):
    """Nothing was timed, and why."""

    reason: str

    def __str__(self) -> str:
        return self.reason


class NotInstalled(NoBaseline):
    """The library is not on this machine."""


def baseline_call(name: str, operator: str, tensors: Mapping[str, Any]) -> Callable[[], Any]:
    """The library's function with a call's tensors bound. Raises NoBaseline."""
    maker = LIBRARIES.get(name)
    if maker is None:
        raise NoBaseline(f"nothing measures `baseline {name}`; there are {', '.join(LIBRARIES)} and previous")
    return maker(operator, {key: value for key, value in tensors.items() if value is not None})


def installed(name: str) -> None:
    """Raises NoBaseline if the library of LIBRARIES cannot be imported, NotInstalled if it is not there."""
    library(*MODULES[name])


def library(module: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise NotInstalled(f"{what} is not installed ({missing})") from None
    except Exception as broken:
        raise NoBaseline(f"{what} cannot be imported: {type(broken).__name__}: {broken}") from None


def fla(operator: str, tensors: Mapping[str, Any]) -> Callable[[], Any]:
    """flash-linear-attention's function of the same meaning; rows of a decode call get their states in order."""
    called = getattr(library(*MODULES["fla"]), FUNCTIONS.get(operator, ""), None)
    if called is None:
        raise NoBaseline(f"flash-linear-attention has nothing for {operator}")
    given = dict(tensors)
    slots = given.pop("ssm_state_indices", None)
    if slots is not None:
        given["initial_state"] = given["initial_state"][slots]
    arguments = accepted(called, given)
    return lambda: called(**arguments)


def accepted(called: Callable[..., Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments under the names that the function has; beta after its sigmoid where it has none of its own."""
    parameters = inspect.signature(called).parameters
    known = set(parameters)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        known |= {"A_log", "dt_bias"}
    given = dict(tensors)
    if given.get(SIGMOID) and SIGMOID not in known:
        given["beta"] = given["beta"].float().sigmoid().to(given["beta"].dtype)
        del given[SIGMOID]
    if lacking := sorted(name for name in given.keys() - known - HARMLESS if given[name] is not False):
        raise NoBaseline(f"{called.__name__} of this version does not have {', '.join(lacking)}")
    if "dt_bias" in given:
        given["dt_bias"] = given["dt_bias"].flatten()
    return {name: value for name, value in given.items() if name in known}


def flashkda(operator: str, tensors: Mapping[str, Any]) -> Callable[[], Any]:
    """FlashKDA's forward: norm, bounded gate and sigmoid in the kernel, states as [V, K]."""
    if operator != "kda.chunk_forward":
        raise NoBaseline(f"FlashKDA has nothing for {operator}")
    needed = ("use_qk_l2norm_in_kernel", "use_gate_in_kernel", SIGMOID, "state_v_first")
    missing = [name for name in needed if not tensors.get(name)]
    missing += [name for name in ("lower_bound", "A_log", "dt_bias") if tensors.get(name) is None]
    if missing:
        raise NoBaseline(f"FlashKDA computes calls with {', '.join(needed)} and a bounded gate; here without "
                         f"{', '.join(missing)}")  # fmt: skip
    run = library(*MODULES["flashkda"]).fwd
    q, k, v, g, beta = (tensors[name] for name in ("q", "k", "v", "g", "beta"))
    named = {name: tensors.get(name) for name in ("A_log", "lower_bound", "initial_state", "cu_seqlens")}
    bias, scale = tensors["dt_bias"].view(v.shape[2], -1), q.shape[-1] ** -0.5
    o, state = v.new_empty(v.shape), tensors["initial_state"].new_empty(tensors["initial_state"].shape)
    return lambda: run(q, k, v, g, beta, scale, o, dt_bias=bias, final_state=state, **named)


LIBRARIES: dict[str, Callable[[str, Mapping[str, Any]], Callable[[], Any]]] = {"fla": fla, "flashkda": flashkda}
