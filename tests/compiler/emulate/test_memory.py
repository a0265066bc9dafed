"""Memory as kernels must treat it: bounds, alignment, initialisation, inputs, outputs, other blocks."""

import numpy as np
import pytest

from kdsl.emulate.launches import Buffer
from kdsl.emulate.run import emulate

HEAD = """extern "C" __global__ void k(float* x, float* y, int n) {
  int i = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;
"""
ADD = HEAD + "  if (i < n) {\n    y[i] = (x[i] + 1.0f);\n  }\n}\n"


def run(source, n=100, y=None, x=None, grid=2, shared=0, threads=64, **options):
    x = np.arange(n, dtype=np.float32) if x is None else x
    y = np.zeros(n, np.float32) if y is None else y
    arguments = (
        x if isinstance(x, Buffer) else Buffer(x, "input"),
        y if isinstance(y, Buffer) else Buffer(y, "output"),
        n,
    )
    return emulate([(source, "k", (grid, 1, 1), (threads, 1, 1), shared, arguments)], **options)


def kinds(result):
    return {f.kind for f in result.findings}


def test_vector_add():
    y = np.zeros(100, np.float32)
    result = run(ADD, y=y)
    assert result.verdict == "pass" and result.evidence == "simulated"
    np.testing.assert_array_equal(y, np.arange(100) + 1)


def test_out_of_bounds_by_one():
    result = run(ADD.replace("i < n", "i <= n"))
    assert [(f.kind, f.detail, f.line, f.offset, f.array) for f in result.findings] == [
        ("out_of_bounds", "read", 4, 400, "x"),
        ("out_of_bounds", "write", 4, 400, "y"),
    ]
    assert "y[i] = (x[i] + 1.0f);" in result.explain()


def test_out_of_bounds_before_the_start_and_far_away():
    for index in ("i - 1", "i + 1000000000", "i - 1000000000"):
        assert kinds(run(ADD.replace("x[i]", f"x[{index}]"))) == {"out_of_bounds"}


def test_output_element_never_written():
    result = run(ADD.replace("i < n", "i < n && i != 37 && i != 41"))
    (finding,) = result.findings
    assert (finding.kind, finding.array, finding.offset, finding.bytes) == ("unwritten", "y", 37 * 4, 8)


def test_input_overwritten():
    result = run(ADD.replace("y[i] =", "x[i] = 2.0f;\n    y[i] ="))
    (finding,) = result.findings
    assert (finding.kind, finding.line, finding.array) == ("changed_input", 4, "x")


def test_misaligned_vector_access():
    source = (
        HEAD + "  if (i < n / 4) {\n    *(float4*)(y + i * 4) = *(float4*)(x + i * 4 + 1 - i / 24);\n  }\n}\n"
    )
    result = run(source)
    (finding,) = result.findings
    assert (finding.kind, finding.detail, finding.bytes, finding.offset % 16) == ("misaligned", "read", 16, 4)


def test_a_view_keeps_its_alignment():
    source = HEAD + "  if (i < n / 4) {\n    *(float4*)(y + i * 4) = *(float4*)(x + i * 4);\n  }\n}\n"
    owner = np.zeros(120, np.float32)
    assert kinds(run(source, x=owner[4:104])) == set()
    assert kinds(run(source, x=owner[1:101])) == {"misaligned"}


TILED = r"""
extern "C" __global__ void k(float* x, float* y, int n) {
  __shared__ float a[1040];
  __shared__ float b[1024];
  int row = (int)threadIdx.x / 16;
  int column = (int)threadIdx.x % 16;
  alignas(64) float sum[1];
  sum[0] = 0.0f;
  for (int step = 0; step < n / 16; ++step) {
    __syncthreads();  // tile free
    a[row * 17 + column] = x[((int)blockIdx.y * 16 + row) * n + step * 16 + column];
    b[row * 16 + column] = x[(step * 16 + row) * n + (int)blockIdx.x * 16 + column];
    __syncthreads();  // tile full
    for (int k = 0; k < 16; ++k) {
      sum[0] = (sum[0] + (a[row * 17 + k] * b[k * 16 + column]));
    }
  }
  y[((int)blockIdx.y * 16 + row) * n + (int)blockIdx.x * 16 + column] = sum[0];
}
"""


def square(source, **options):
    x = np.random.default_rng(0).standard_normal((48, 48)).astype(np.float32)
    y = np.zeros((48, 48), np.float32)
    launch = (source, "k", (3, 3, 1), (256, 1, 1), 0, (Buffer(x, "input"), Buffer(y, "output"), 48))
    return emulate([launch], **options), x, y


@pytest.mark.parametrize("seed", range(3))
def test_tiled_product(seed):
    result, x, y = square(TILED, seed=seed)
    assert result.verdict == "pass", result.explain()
    np.testing.assert_allclose(y, x @ x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("barrier, detail", [("free", "write-after-read"), ("full", "read-after-write")])
@pytest.mark.parametrize("seed", range(3))
def test_dropped_barrier(barrier, detail, seed):
    result, *_ = square(TILED.replace(f"__syncthreads();  // tile {barrier}", "//"), seed=seed)
    assert detail in {f.detail for f in result.findings if f.kind == "race"}
    race = next(f for f in result.findings if f.detail == detail)
    assert race.thread != race.other_thread and {race.line, race.other_line} <= {11, 12, 15}


def test_uninitialised_shared_read():
    result, *_ = square(TILED.replace("a[row * 17 + k]", "a[row * 17 + k + 1]"))
    assert kinds(result) == {"uninitialised"}


def test_beyond_a_static_array_although_inside_shared_memory():
    result, *_ = square(TILED.replace("a[row * 17 + k]", "a[row * 17 + k + 1040]"))
    assert kinds(result) == {"out_of_bounds"}


def test_local_arrays_have_bounds_too():
    result, *_ = square(TILED.replace("y[((int)blockIdx.y", "sum[1] = 0.0f;\n  y[((int)blockIdx.y"))
    assert "element 1 of a local array of 1" in result.explain()


def test_two_blocks_write_one_element():
    result = run(HEAD + "  y[i % 64] = x[i];\n}\n", n=128, y=np.zeros(64, np.float32))
    race = result.findings[0]
    assert (race.kind, race.detail, race.other_thread) == ("race", "write-after-write", None)
    assert "another block" in race.explain()


def test_the_same_bytes_written_twice_is_a_note():
    result = run(HEAD + "  y[i % 64] = 1.0f;\n}\n", n=128, y=np.zeros(64, np.float32))
    assert result.verdict == "pass" and {n.kind for n in result.notes} == {"redundant"}


@pytest.mark.parametrize("seed", range(4))
def test_a_block_reads_what_another_writes_in_the_same_launch(seed):
    y = Buffer(np.ones(128, np.float32), "updated")
    result = run(HEAD + "  y[i] = (y[127 - i] + x[i]);\n}\n", n=128, y=y, seed=seed)
    assert "race" in kinds(result)


def test_workspace_between_launches():
    write = ADD.replace("void k", "void write")
    read = ADD.replace("void k", "void read")
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    between = Buffer(np.zeros(128, np.float32), "workspace", "between")

    def launches(n):
        yield write, "write", (2, 1, 1), (64, 1, 1), 0, (Buffer(x, "input"), between, n)
        yield read, "read", (2, 1, 1), (64, 1, 1), 0, (between, Buffer(y, "output"), 100)

    assert emulate(launches(100)).verdict == "pass"
    np.testing.assert_array_equal(y, x + 2)
    result = emulate(launches(90))
    (finding,) = result.findings
    assert (finding.kind, finding.array, finding.kernel, finding.offset) == (
        "uninitialised",
        "between",
        "read",
        360,
    )
    assert finding.times == 10


def test_one_array_as_two_arguments_is_one_buffer():
    pool = np.ones(100, np.float32)
    result = run(
        HEAD + "  if (i < n) {\n    y[i] = (x[i] * 2.0f);\n  }\n}\n", x=pool, y=Buffer(pool, "updated")
    )
    assert result.verdict == "pass"
    assert (pool == 2).all()


def test_global_accesses_of_asm_are_checked_too():
    asm = """    float v;
    asm volatile("ld.global.nc.f32 %0, [%1 + 4];" : "=f"(v) : "l"(x + i));
    asm volatile("st.global.f32 [%0], %1;" :: "l"(y + i), "f"(v + 1.0f) : "memory");
"""
    source = ADD.replace("    y[i] = (x[i] + 1.0f);\n", asm)
    y = np.zeros(100, np.float32)
    (finding,) = run(source, y=y).findings
    assert (finding.kind, finding.line, finding.array, finding.offset) == ("out_of_bounds", 5, "x", 400)
    np.testing.assert_array_equal(y[:99], np.arange(99) + 2)


def test_null_pointers():
    source = ADD.replace("x[i] + 1.0f", "x != nullptr ? (float)x[i] : 2.0f")
    y = np.zeros(100, np.float32)
    assert (
        emulate([(source, "k", (2, 1, 1), (64, 1, 1), 0, (None, Buffer(y, "output"), 100))]).verdict == "pass"
    )
    assert (y == 2).all()
    result = emulate([(ADD, "k", (2, 1, 1), (64, 1, 1), 0, (None, Buffer(y, "output"), 100))])
    assert [(f.kind, f.line) for f in result.findings] == [("crash", 4)]


def test_launch_limits():
    assert kinds(run(ADD, grid=0)) == {"launch"}
    assert kinds(run(ADD, threads=1025)) == {"launch"}
    assert kinds(run(ADD, shared=100 << 10, target="sm_89")) == {"launch"}
    assert kinds(run(ADD, shared=100 << 10, target="sm_90a")) == set()
    bounded = ADD.replace("__global__ void", "__global__ void __launch_bounds__(32)")
    assert "at most 32" in run(bounded).explain()


def test_arguments_that_do_not_fit():
    with pytest.raises(ValueError, match="2 arguments found, 3 needed"):
        emulate([(ADD, "k", (1, 1, 1), (32, 1, 1), 0, (1, 2))])
    with pytest.raises(TypeError, match="give a Buffer"):
        emulate([(ADD, "k", (1, 1, 1), (32, 1, 1), 0, (1, 2, 3))])
    with pytest.raises(ValueError, match="no kernel 'other'"):
        emulate([(ADD, "other", (1, 1, 1), (32, 1, 1), 0, ())])
    with pytest.raises(ValueError, match="float has 4 bytes"):
        run(ADD, x=np.zeros(100))
    with pytest.raises(ValueError, match="overlap in part"):
        both = np.zeros(150, np.float32)
        run(ADD, x=both[:100], y=both[50:])
    with pytest.raises(ValueError, match="sm_12"):
        run(ADD, target="sm_12")
