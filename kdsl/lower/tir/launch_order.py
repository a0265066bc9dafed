"""A launch axis that begins with the values of its index that have most steps: `y : n order longest_first`.

Blocks start in the order of their numbers, and a long sequence that starts last keeps the GPU waiting. The steps of up
to 32 values are compared by the lanes of every warp, one value a lane; where there are more, the blocks go in the order
of the index: any order gives the same results.
"""

from __future__ import annotations

from kdsl.check.model import GridLoop
from kdsl.lower.tir.expressions import Scope, as_index, constant
from kdsl.lower.tvm import T, op

LANE, RANKED = "kdsl_lane", "kdsl_longest_first"
RANK = 3  # which argument of a call of RANKED is the number of the block, behind the function's name
LANE_SOURCE = "__device__ __forceinline__ int kdsl_lane() { return threadIdx.x; }\n"
RANKED_SOURCE = """\
__device__ __forceinline__ int kdsl_longest_first(int steps, int count, int rank) {
  if (count > 32) return rank;
  int lane = threadIdx.x, before = 0;
  for (int other = 0; other < count; ++other) {
    int theirs = __shfl_sync(0xffffffffu, steps, other);
    before += theirs > steps || (theirs == steps && other < lane);
  }
  unsigned found = __ballot_sync(0xffffffffu, lane < count && before == rank);
  return __popc((found & -found) - 1);
}
"""


def longest_first(scope: Scope, loop: GridLoop, block, stepped: str):
    """The value of the loop's index that a block has, found at the task's start and kept in a register. `stepped` is
    the index whose values are steps."""
    signature = scope.signature
    indices = signature.plan.operator.indices
    count = as_index(scope.value(indices[loop.index].extent))
    lane = T.cuda.func_call(LANE, source_code=LANE_SOURCE, return_type="int32")
    own = op.min(as_index(lane), count - constant(1, "int64"))
    steps = as_index(scope.with_indices({**scope.indices, loop.index: own}).value(indices[stepped].extent))
    numbers = (number.astype("int32") for number in (steps, count, block))
    found = T.cuda.func_call(RANKED, *numbers, source_code=RANKED_SOURCE, return_type="int32")
    statement, value = signature.hold(f"v_{loop.index}", found)
    signature.bindings.append(statement)
    return as_index(value)
