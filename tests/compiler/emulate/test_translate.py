"""CUDA text to C++: lines stay where they are, and what is not known is refused by name."""

import re

import numpy as np
import pytest

from kdsl.emulate.assembly import known_opcodes, replace_assembly
from kdsl.emulate.launches import Buffer
from kdsl.emulate.refusal import CannotEmulate
from kdsl.emulate.run import emulate
from kdsl.emulate.translate import translate

HEAD = 'extern "C" __global__ void __launch_bounds__(64) k(float* __restrict__ x, const half* y, int n) {\n'


def refusal(source: str, symbol: str = "k"):
    arguments = (Buffer(np.zeros(64, np.float32), "updated"), Buffer(np.zeros(64, np.float16), "input"), 64)
    result = emulate([(source, symbol, (1, 1, 1), (64, 1, 1), 0, arguments)])
    assert result.verdict == "unknown" and not result.findings
    return result.refusal


def test_parameters_and_bounds():
    (kernel,) = translate(HEAD[:-3] + ";\n" + HEAD + "  x[0] = 1.0f;\n}\n").kernels
    assert [p.type_name for p in kernel.parameters] == [
        "kdsl::Pointer<float>",
        "kdsl::Pointer<const half>",
        "int",
    ]
    assert (kernel.symbol, kernel.most_threads) == ("k", 64)


def test_every_line_stays_where_it_is():
    statement = '  asm volatile(\n    "cp.async.commit_group;"\n    ::: "memory");\n'
    body = f"\n\n  // three\n{statement}  if (n > 1) {{\n    x[n] = 1.0f;\n  }}\n}}\n"
    lines = translate(HEAD + body).source.split('#line 1 "kernel.cu"\n')[1].splitlines()
    assert "kdsl::line = 8; " in lines[7] and "x[n]" not in lines[7]
    assert lines[8].split("; ")[0] == "kdsl::line = 9" and "x[n] = 1.0f;" in lines[8]


@pytest.mark.parametrize("source, what, line", [
    (HEAD + "  x[0] = strange(y[0]);\n}\n", "`strange`", 2),
    (HEAD + "  strange_t z;\n}\n", "`strange_t`", 2),
    (HEAD + '  asm volatile("tcgen05.fence::before_thread_sync;");\n}\n', "`tcgen05.fence::before_thread_sync`", 2),
    (HEAD + '  unsigned a;\n  asm("mov.u64 %0, %1;" : "=q"(a) : "q"(a));\n}\n', '"q"|`=q`', 3),
    ("#include <mma.h>\n" + HEAD + "}\n", "<mma.h>", 1),
    (HEAD + "  __shared__ float t[4][4];\n}\n", "one dimension", 2),
    (HEAD + "  x[0] = ;\n}\n", "does not compile", 2),
])  # fmt: skip
def test_what_is_not_known_is_refused_by_name(source, what, line):
    found = refusal(source)
    assert re.search(what, str(found)) and found.line == line


def test_line_directives_of_the_text_do_not_move_its_lines():
    found = refusal(HEAD + '#line 7 "a.kds"\n  x[0] = strange(y[0]);\n}\n')
    assert found.line == 3


def test_a_text_without_kernels():
    assert "without a `__global__` function" in str(refusal("int f() { return 1; }\n"))


def test_a_numbered_barrier_is_refused_when_it_is_reached():
    assert "bar.sync" in str(refusal(HEAD + '  asm volatile("bar.sync 1;");\n}\n'))


def test_scopes_registers_and_predicates():
    copy, store = "@p cp.async.ca.shared.global [%1 + 16], [%2], 4;", "@!p st.shared.u32 [%1], {%3};"
    template = f'"{{ .reg .pred p;\\n setp.ne.b32 p, %0, 0;\\n {copy}"\n " {store} }}"'
    text = f'asm volatile({template} :: "r"(a), "r"(b), "l"(c), "r"(0x7f));'
    found = replace_assembly(text)
    assert "bool kdsl_p{};" in found and "ptx::setp_ne_b32(kdsl_p, kdsl_0, 0);" in found
    assert "if (kdsl_p) ptx::cp_async_ca_shared_global(kdsl_1+ 16, kdsl_2, 4);" in found
    assert "if (!kdsl_p) ptx::st_shared_u32(kdsl_1, kdsl_3);" in found


def test_operands_that_are_written_come_back():
    text = 'asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(z[1]) : "f"(a), "f"(b));'
    assert "(z[1]) = kdsl_0;" in replace_assembly(text)
    assert "cvt_rn_bf16x2_f32" in known_opcodes()


def test_unknown_instruction_names_its_line():
    with pytest.raises(CannotEmulate) as caught:
        replace_assembly('\n\nasm("tcgen05.mma.x %0;" :: "r"(a));')
    assert caught.value.refusal.line == 3
