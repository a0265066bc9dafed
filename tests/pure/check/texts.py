"""Rules that the tests break in one place each."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from kdsl.data import data_root

HERE = Path(__file__).parent
STANDARD = data_root() / "stdlib"
RULES = data_root() / "rules"

MMA = (HERE / "portable_mma.kds").read_text("utf-8")
CPU = (RULES / "kda.chunk_forward" / "cpu_split.kds").read_text("utf-8")


@frozen
class Broken:
    """`old` of the base text becomes `new`; `codes` is what must be found, and nothing else."""

    name: str
    base: str
    old: str
    new: str
    codes: tuple[str, ...]
    worded: bool = True  # false: the numbers in the words are those of the shipped operator

    @property
    def text(self) -> str:
        assert self.base.count(self.old) >= 1, f"{self.name}: the base has no {self.old!r}"
        return self.base.replace(self.old, self.new, 1)


BROKEN = (
    Broken("accumulator_as_operand", MMA,
           "      state for state_key, state_query   : bf16 in registers as mma.m16n8k16.A\n", "", ("E301",)),
    Broken("no_pad", MMA, "k_decayed, q_decayed, k_restored   : in shared pad 8",
           "k_decayed, q_decayed, k_restored   : in shared", ("E501", "W501")),
    Broken("lost_between_kernels", MMA, "k_restored, inv, m                  : bf16 in workspace",
           "inv, m                              : bf16 in workspace", ("E402",)),
    Broken("part_left_out", MMA, "computes recur", "computes prepare", ("E401", "E403")),
    Broken("stage_misspelt", MMA, "{ state_key, solve_apply", "{ state_keys, solve_apply", ("E101",)),
    Broken("instruction_of_another_gpu", MMA, "state_update : mma.m16n8k16 }",
           "state_update : wgmma.m64k16 }",
           ("E210", "E307", "E405")),
    Broken("tile_48", MMA, "[32, 64]  default 64", "[32, 48, 64]  default 64", ("E120",)),
    Broken("index_dealt_twice", MMA, "y : n, h }", "y : n, h, n }", ("E122",)),
    Broken("form_misspelt", MMA, "factored else centred", "factord else centred", ("E142",)),
    Broken("form_needs", MMA, "factored else centred", "factored else factored", ("E140", "E404")),
    Broken("requirement_contradicts", MMA, "lower_bound >= -5.0 ",
           "lower_bound >= -5.0 and gate is precomputed ",
           ("E503",)),
    Broken("always_true", MMA, "K == 128 and V == 128", "K == 128 and V == 128 and T >= 0", ("W503",)),
    Broken("tensor_memory_on_sm_80", MMA, "in registers as mma.m16n8k16.C\n      state for",
           "in tensor_memory\n      state for", ("E211",)),
    Broken("bf16_state", MMA, "state, state_next                  : f32",
           "state, state_next                  : bf16",
           ("E308",)),
    Broken("bf16_gates", MMA, "kn, qn, lg, gc                      : f32",
           "kn, qn, lg, gc                      : bf16",
           ("E308",)),
    Broken("bytes_are_not_elements", MMA, "95% of target.shared_bytes_per_block", "65536", ("E111",)),
    Broken("promise_at_some_points", MMA, "95% of target.shared_bytes_per_block", "64 KiB", ("E501",)),
    Broken("latency_in_ensure", MMA, "      spills == 0", "      p95_latency <= 900 us", ("E114",)),
    Broken("spills_in_measure", MMA, "p95_latency <= 900 us", "spills == 0", ("E114",)),
    Broken("half_a_warp", MMA, "4 warps over i", "chunk / 6 warps over i", ("E120",)),
    Broken("idle_warps", MMA, "over i by chunk / 4", "over i by chunk / 2", ("E405",)),
    Broken("product_of_a_scan", MMA, "gram_kk, gram_qk : mma", "gram_kk, gram_qk, decay_sum : mma",
           ("E310",)),
    Broken("another_chain", MMA, "chain = split", "chain = folded", ("E402", "E404")),
    Broken("wrong_fragment", MMA, "u for within, state_update         : bf16 in registers as mma.m16n8k16.A",
           "u for within, state_update         : bf16 in registers as mma.m16n8k16.B", ("E307",)),
    Broken("no_tma_on_sm_80", MMA, "via cp.async of 16 bytes\n      inv", "via tma\n      inv", ("E210",)),
    Broken("default_on_a_target", MMA, "2..3      default 2", "2..3      default 2, 4 on sm_90a", ("E142",)),
    Broken("default_twice_on_a_target", MMA, "2..3      default 2", "2..3 default 2, 3 on sm_90a, 2 on sm_90a",
           ("E102",)),
    Broken("default_elsewhere", MMA, "2..3      default 2", "2..3      default 2, 3 on cpu", ("E107",)),
    Broken("default_on_no_target", MMA, "2..3      default 2", "2..3      default 2, 3 on sm_90", ("E101",)),
    Broken("unused_choice", MMA, "depth  in 2..3      default 2",
           "depth  in 2..3 default 2; idle in 1..3 default 1",
           ("W502",)),
    Broken("sum_in_lanes", CPU, "vector j by 8", "vector p by 8", ("E124",)),
    Broken("scan_in_lanes", CPU, "vector j by 8", "vector i by 8", ("E124",)),
    Broken("carried_over_the_grid", CPU, "task : n, h", "task : n, h, c", ("E125",)),
    Broken("loop_bound_and_vectorised", CPU, "task : n, h", "task : n, h, j", ("E122", "E125")),
    Broken("size_in_a_tile", CPU, "C = chunk", "C = chunk * V", ("E107",)),
    Broken("option_compared", CPU, "K % 16 == 0 and", "gate == bounded and", ("E110",)),
    Broken("parameter_at_one_point", CPU, "chunk in [16, 32]", "chunk in [16, 32, 48]", ("E142",)),
    Broken("stack_over", CPU, "stack_bytes <= target.stack_bytes_per_task", "stack_bytes <= 512 KiB",
           ("E501",), False),
    Broken("tactic_arity", CPU, "vector_products(width)", "vector_products(width, 3)", ("E103",)),
    Broken("several_independent", CPU.replace("K % 16", "X % 16").replace("form {",
                                                                          "form {\n    span = serial"),
           "apply vector_products(width)", "apply vector_product(width)", ("E101",)),
)  # fmt: skip
