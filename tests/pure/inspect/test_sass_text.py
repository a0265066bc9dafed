"""The SASS parser on fixed text: both tools, control codes, labels, predicates, source lines."""

from __future__ import annotations

import pytest

from kdsl.inspect import sass
from kdsl.inspect.listing import Place, on_lines, split_operands

NVDISASM = '''
	.target	sm_90a
	.elftype	@"ET_EXEC"
//--------------------- .text.first           --------------------------
	.section	.text.first,"ax",@progbits
        .global         first
        .type           first,@function
        .other          first,@"STO_CUDA_ENTRY STV_DEFAULT"
first:
.text.first:
	//## File "kernel.cu", line 7
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File "cuda_fp16.hpp", line 151 inlined at "kernel.cu", line 20
	//## File "kernel.cu", line 20 inlined at "kernel.cu", line 30
	//## File "kernel.cu", line 30
        /*0010*/              @!PT LDS RZ, [RZ] ;
        /*0020*/                   LDGSTS.E.BYPASS.128 [R21+0x5000], desc[UR6][R2.64] ;
.L_x_0:
        /*0030*/              @!P0 BRA `(.L_x_0) ;
	//## File "kernel.cu", line 31
        /*0040*/                   HGMMA.64x16x16.F32.BF16 R24, gdesc[UR12], R24, !UPT, gsb0 ;
        /*0050*/                   BRA.U !UP0, `(.L_x_0) ;
        /*0060*/                   EXIT ;
.L_x_1:
        /*0070*/                   BRA `(.L_x_1);
.L_x_2:
	.section	.text.helper,"ax",@progbits
        .type           helper,@function
        .other          helper,@"STO_CUDA_ENTRY_NOT STV_DEFAULT"
helper:
.text.helper:
        /*0000*/                   RET.REL.NODEC R20 `(first) ;
'''.replace("STO_CUDA_ENTRY_NOT", "STV_DEFAULT")  # fmt: skip

CUOBJDUMP = """
	code for sm_80
		Function : k2
	.headerflags	@"EF_CUDA_TEXMODE_UNIFIED EF_CUDA_64BIT_ADDRESS EF_CUDA_SM80"
        /*0000*/                   MOV R1, c[0x0][0x28] ;                /* 0x00000a0000017a02 */
                                                                         /* 0x000fe20000000f00 */
        /*0010*/              @P0  BRA 0x30 ;                            /* 0x0000000000000947 */
        /*0020*/                   STG.E.64.STRONG.GPU [R2.64+0x8], R4 ; /* 0x0000000402007986 */
        /*0030*/                   EXIT ;                                /* 0x000000000000794d */
		..........
"""


def test_nvdisasm_text():
    found = sass.parse(NVDISASM, "nvdisasm 1.2.3")
    assert (found.level, found.arch, found.tool) == ("sass", "sm_90a", "nvdisasm 1.2.3")
    first = found.of("first")
    assert [i.name for i in first.instructions] == [
        "LDC", "LDS", "LDGSTS.E.BYPASS.128", "BRA", "HGMMA.64x16x16.F32.BF16", "BRA.U", "EXIT", "BRA",
    ]  # fmt: skip
    assert first.labels[".L_x_0"] == 0x30 and first.labels[".L_x_1"] == 0x70
    assert [f.name for f in found.functions if f.entry] == ["first"]
    assert found.of() is first


def test_predicates_and_operands():
    first = sass.parse(NVDISASM).of("first")
    padding, copy, branch, product = first.instructions[1:5]
    assert not padding.executes and copy.executes
    assert branch.guard == "!P0" and branch.operands == ("`(.L_x_0)",)
    assert copy.operands == ("[R21+0x5000]", "desc[UR6][R2.64]")
    assert product.operands == ("R24", "gdesc[UR12]", "R24", "!UPT", "gsb0")
    assert str(copy) == "LDGSTS.E.BYPASS.128 [R21+0x5000], desc[UR6][R2.64]"


def test_source_lines_with_the_chain_of_inlining():
    first = sass.parse(NVDISASM).of("first")
    chain = (Place("cuda_fp16.hpp", 151), Place("kernel.cu", 20), Place("kernel.cu", 30))
    assert first.instructions[0].places == (Place("kernel.cu", 7),)
    assert first.instructions[2].places == first.instructions[3].places == chain
    assert [i.opcode for i in first.instructions if on_lines([30])(i)] == ["LDS", "LDGSTS", "BRA"]
    assert not any(map(on_lines([151], "kernel.cu"), first.instructions))


def test_cuobjdump_text_with_encodings():
    found = sass.parse(CUOBJDUMP).of("k2")
    assert sass.parse(CUOBJDUMP).arch == "sm_80"
    assert [i.address for i in found.instructions] == [0, 0x10, 0x20, 0x30]
    assert found.instructions[1].guard == "P0" and found.instructions[1].operands == ("0x30",)
    assert found.instructions[2].modifiers == ("E", "64", "STRONG", "GPU")


@pytest.mark.parametrize(
    "line",
    [
        "[B------:R-:W0:-:S01]  /*0a30*/  LDS.128 R4, [R2+0x10] ;",
        "/*0a30*/ [B01----:R2:W-:Y:S04] LDS.128 R4, [R2+0x10] ;",
        "/*0a30*/   LDS.128 R4, [R2+0x10]  &wr=0x0 &req={1,2} ?WAIT1_END ;",
        "/*0a30*/   LDS.128 R4, [R2+0x10] ;  /* 0x0 */ /* &wr=1 */",
    ],
)
def test_control_codes_are_passed_over(line):
    found = sass.parse(f"Function : f\n{line}\n").of("f").instructions
    assert [(i.address, i.name, i.operands) for i in found] == [(0xA30, "LDS.128", ("R4", "[R2+0x10]"))]


def test_text_without_code_has_no_functions():
    assert sass.parse("").functions == ()
    with pytest.raises(KeyError, match="none"):
        sass.parse("nothing here\n").of("k")


def test_operands_split_outside_brackets():
    assert split_operands("{%r1, %r2}, [%rd1, {%r3, %r4}], f(a, b)") == (
        "{%r1, %r2}", "[%rd1, {%r3, %r4}]", "f(a, b)",
    )  # fmt: skip
    assert split_operands("") == ()
