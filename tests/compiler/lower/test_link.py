"""Two kernels' texts in one launch: declarations, arguments, words, registers, shared memory."""

from __future__ import annotations

import re

import pytest

from kdsl.driver.contract import static_facts
from kdsl.lower.cuda import CudaSource
from kdsl.lower.link import HEAD, as_role, defines, items, joined, role, two
from kdsl.lower.lowering import Lowering

from ..workshop import library_with, plan

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
PRELUDE = """\
#include <a.h>
// why
#define ROUND(x) \\
static int x(int y) { \\
  return y; \\
}
ROUND(one)
#if DEFINED
ROUND(two)
#endif

#undef ROUND
struct pair {
  int x, y;  // {

  pair() { print("}"); }
};
using both = pair;
__device__ int twice(int x)
{
  return x + x;
}
"""


def lowering(choices: dict | None = None, dtypes: dict | None = None) -> Lowering:
    return Lowering(plan(library_with("mma_beside"), "mma_beside", choices or {}, dtypes or {}, target="sm_90a", **ON))


# ---- declarations


def test_declarations_one_by_one():
    found = items(PRELUDE)
    assert [item.split("\n")[0] for item in found] == [
        "#include <a.h>", "// why", "ROUND(one)", "#undef ROUND", "struct pair {", "using both = pair;",
        "__device__ int twice(int x)",
    ]  # fmt: skip
    assert found[1].endswith("}") and found[2].endswith("#endif")
    assert "\n".join(found).replace("\n", "") == PRELUDE.replace("\n", ""), "nothing is lost"
    assert [defines(item) for item in found] == [False, False, False, False, True, True, True]


def test_declarations_of_two_sources_keep_their_orders():
    first = ["#define F half", "F(one)", "#undef F", "int f() {}", "int g() {}"]
    again = ["#define F float", "F(one)", "#undef F"]
    second = [*first[:3], *again, "int g() {}", "int f() {}"]
    found = joined(first, second)
    assert [item for item in found if defines(item)] == ["int f() {}", "int g() {}"], "definitions once"
    macros = [item for item in found if not defines(item)]
    assert macros == [*first[:3], *again]
    assert joined(first, first) == first and joined(first, []) == first and joined([], second) == second


@pytest.mark.parametrize("dtypes", [{}, {"v": "f16"}, dict.fromkeys(("q", "k", "v", "g", "beta"), "f16")], ids=str)
def test_preludes_of_both_stand_in_the_launch(dtypes):
    made = lowering(dtypes=dtypes)
    (launch,) = made.sources
    heads = [source.source[: HEAD.search(source.source).start()] for source in made.alone]
    for line in {line for head in heads for line in head.split("\n") if line.strip()} - {""}:
        assert line in launch.source
    assert launch.source.count("__global__") == 1 and launch.source.count('extern "C"') == 1


# ---- one kernel as a role

KERNEL = """\
static int helper() { return 1; }
extern "C" __global__ void __launch_bounds__(64, 3) kdsl_a_kernel(float* __restrict__ x_ptr, int64_t n) {
  extern __shared__ __align__(1024) uchar buf_dyn_shmem_ptr[];
  kdsl_ring_t((&(((nv_bfloat16*)buf_dyn_shmem_ptr)[128])));
  KDSL_WAIT_FULL(f(0, 1), ((int)threadIdx.y));
  __syncthreads();
  KDSL_SAY_EMPTY((c % 4), (c / 4));
}
"""


def test_a_role_has_its_own_warps_barrier_and_words():
    found = role(CudaSource("a", "kdsl_a_kernel", KERNEL, (), 256, (32, 2)), 2)
    assert found.name == "kdsl_a_kernel_role" and found.helpers == ("static int helper() { return 1; }",)
    assert found.rings == {"t": "(nv_bfloat16*)kdsl_shared + 128"}
    assert found.parameters == {"x_ptr": "float* __restrict__ x_ptr", "n": "int64_t n"}
    signature, *body = found.text.split("\n")
    assert signature.startswith("__device__ __forceinline__ void kdsl_a_kernel_role(float* __restrict__ x_ptr, ")
    assert body == [
        "  kdsl_slot_wait(kdsl_full, f(0, 1), kdsl_warp);",
        "  kdsl_warps_barrier(kdsl_barrier, 64);",
        "  kdsl_slot_say(kdsl_empty, (c % 4));",
        "}",
        "",
    ]
    assert found.numbers == (0, 5, 6, 7, 8, 9)


@pytest.mark.parametrize("line, becomes", [
    ("KDSL_WAIT_EMPTY(a, b);", "kdsl_slot_wait(kdsl_empty, a, (b) + 1);"),
    ("KDSL_SAY_FULL(a, b);", "kdsl_slot_say(kdsl_full, a);"),
    ("KDSL_SAY_FULL((a % 4), (b / 4)); x = 1;", "kdsl_slot_say(kdsl_full, (a % 4)); x = 1;"),
])
def test_words(line, becomes):
    assert as_role(line, 2) == becomes


def test_two_arguments():
    assert two("f(a, b), g(c)") == ("f(a, b)", "g(c)")
    with pytest.raises(ValueError, match="f"):
        two("f(a, b)")


# ---- the launch


def test_arguments_are_those_of_both_and_none_of_what_passes_between_them():
    made = lowering()
    (launch,) = made.sources
    names = [argument.name for argument in launch.arguments if argument.kind == "tensor"]
    assert {"q", "k", "v", "g", "o", "final_state"} <= set(names) and len(names) == len(set(names))
    assert not {argument.name for argument in launch.arguments} & set(made.plan.kernels[0].passes)
    assert not any(argument.kind in ("workspace", "group") for argument in launch.arguments)
    head = launch.source[launch.source.index("__global__") :]
    parameters = re.match(r"__global__ void __launch_bounds__\(\d+, 1\) \w+\((.*)\) \{", head)[1]
    assert len(parameters.split(", ")) == len(launch.arguments)


@pytest.mark.parametrize("choices", [{}, {"groups": 2}, {"depth": 2}], ids=str)
@pytest.mark.parametrize("dtypes", [{}, {"g": "f32"}], ids=str)
def test_shared_memory_is_what_the_contract_says(choices, dtypes):
    made = lowering(choices, dtypes)
    (launch,) = made.sources
    facts = static_facts(made.plan)
    assert facts["recurrence/shared_bytes"].value == launch.shared_bytes
    prepare, recurrence = made.plan.kernels
    groups = recurrence.tensors["m"].ring
    assert launch.threads == (32, recurrence.threads[1] + groups * prepare.threads[1])
    assert launch.shared_bytes > made.alone[1].shared_bytes + groups * made.alone[0].shared_bytes


def test_registers_are_dealt():
    made = lowering()
    prepare, recurrence = made.plan.kernels
    text = made.sources[0].source
    assert re.findall(r'"setmaxnreg\.(\w+)\.sync\.aligned\.u32 (\d+);"', text) == [
        ("inc", str(recurrence.registers)), ("dec", str(prepare.registers)),
    ]  # fmt: skip
