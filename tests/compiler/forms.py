"""Rules for every form of kda.chunk_forward on the CPU, in one kernel or two, as texts."""

from __future__ import annotations

from itertools import product

from kdsl.check.graph import build_graph

from .workshop import shipped

DECAYS = ("factored", "centred", "pairwise")
CHAINS = ("split", "folded")
FORMS = tuple(product(DECAYS, CHAINS))

ONE = """
  kernel all computes prepare, recur {{
    grid {{ task : n, h }}
    {place}
    {compute}
  }}"""
TWO = """
  kernel prepare computes prepare {{
    grid {{ task : n, h, c }}
    place {{ {passed} : f32 in workspace }}
    {place}
  }}
  kernel recur computes recur {{
    grid {{ task : n, h }}
    {compute}
  }}"""
RULE = """rule {name} schedules kda.chunk_forward on cpu {{
  require {{
    {gate}
    K % 16 == 0 and V % 16 == 0 else "pad the head dimensions to a multiple of 16"
  }}
  form {{
    C = {chunk}
    decay = {decay}
    chain = {chain}
  }}{kernels}
  ensure {{ error within kda.acceptance }}
}}
"""


def passed_on(decay: str, chain: str) -> list[str]:
    """Tensors that part `prepare` makes and part `recur` reads."""
    operator = shipped().operators["kda.chunk_forward"]
    settings = {"decay": decay, "chain": chain, "gate": "bounded", "C": 16,
                "use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}  # fmt: skip
    graph = build_graph(operator, settings)
    made = [stage.tensor for stage in graph.of_parts(("prepare",)).stages]
    read = {r.tensor for stage in graph.of_parts(("recur",)).stages for r in stage.reads}
    return [name for name in dict.fromkeys(made) if name in read]


def form_rule(
    decay: str, chain: str, kernels: int, chunk: int = 16, place: str = "", compute: str = ""
) -> tuple[str, str]:
    """(name, text) of a rule; what it does not place lies where the compiler puts it."""
    name = f"cpu_{decay}_{chain}_{kernels}"
    gate = "" if decay == "pairwise" else 'gate is bounded and lower_bound >= -5.0 else "needs bounded gates"'
    place = f"place {{ {place} }}" if place else ""
    compute = f"compute {{ {compute} }}" if compute else ""
    body = (ONE if kernels == 1 else TWO).format(
        passed=", ".join(passed_on(decay, chain)), place=place, compute=compute
    )
    text = RULE.format(name=name, gate=gate, chunk=chunk, decay=decay, chain=chain, kernels=body)
    return name, text

RUNS = """
  kernel prepare computes prepare {{
    grid {{ task : n, h, c }}
    place {{ {passed} : f32 in workspace }}
  }}
  kernel local computes local {{
    grid {{ task : n, h, s }}
    place {{ left : f32 in workspace }}
  }}
  kernel transfer computes transfer {{
    grid {{ task : n, h, s }}
    place {{ passed : f32 in workspace }}
  }}
  kernel join computes join {{
    grid {{ task : n, h }}
    place {{ entered : f32 in workspace }}
  }}
  kernel recur computes recur {{ grid {{ task : n, h, s }} }}"""


def runs_rule(decay: str, chain: str, runs: int) -> tuple[str, str]:
    """(name, text) of a rule that cuts sequences into runs, which tasks take side by side."""
    name = f"cpu_{decay}_{chain}_runs"
    gate = "" if decay == "pairwise" else 'gate is bounded and lower_bound >= -5.0 else "needs bounded gates"'
    kernels = RUNS.format(passed=", ".join(passed_on(decay, chain)))
    text = RULE.format(name=name, gate=gate, chunk=16, decay=decay, chain=chain, kernels=kernels)
    return name, text.replace("  form {\n", f"  form {{\n    span = segmented\n    S = {runs}\n")
