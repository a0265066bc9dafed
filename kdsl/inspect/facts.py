"""The facts about compiled code that contracts speak of, each with its evidence and the tool that gave it.

Keys are the predicates as a claim writes them: `spills`, `blocks_per_sm`, `count(shfl.sync) at ptx`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import field, frozen

from kdsl.check.model import Target
from kdsl.contract.verdict import Fact
from kdsl.inspect import counts as counting
from kdsl.inspect import overlap, ptx, sass
from kdsl.inspect.listing import PTX, SASS, Listing, Selection
from kdsl.inspect.resources import Resources, resources
from kdsl.lower.toolchain.nvcc import CudaObjects
from kdsl.source.diagnostic import Evidence


@frozen
class Code:
    """A compiled kernel taken apart: what it uses, its PTX and its SASS."""

    kernel: str
    objects: CudaObjects
    use: Resources
    ptx: Listing = field(repr=False)
    sass: Listing = field(repr=False)

    def listing(self, level: str) -> Listing:
        return {PTX: self.ptx, SASS: self.sass}[level]


def read(
    objects: CudaObjects, target: Target, dynamic_shared_bytes: int, threads: int, kernel: str | None = None
) -> Code:
    """One kernel of a module, launched with `threads` in a block. Without a name, its only kernel.

    Raises ToolMissing if there is no disassembler, KeyError if there is no such kernel.
    """
    text = ptx.parse(objects.ptx, objects.version)
    name = text.of(kernel).name
    use = resources(objects.log.of(name), target, dynamic_shared_bytes, threads)
    return Code(name, objects, use, text, sass.disassemble(objects.cubin))


def facts(
    objects: CudaObjects,
    target: Target,
    dynamic_shared_bytes: int,
    threads: int,
    kernel: str | None = None,
    counted: Iterable[tuple[str, str]] = (),
    used: Mapping[str, Selection | None] | None = None,
) -> dict[str, Fact]:
    """Every fact that needs no more than the code. `counted` are pairs such as ("shfl.sync", "ptx"); `used`
    maps an instruction to the part of the kernel that must use it (None: any)."""
    code = read(objects, target, dynamic_shared_bytes, threads, kernel)
    found = resource_facts(code.use, objects.version)
    found["injected_waits"] = injected_fact(code)
    for name, level in counted:
        found[f"count({name}) at {level}"] = count_fact(code, name, level)
    for name, selected in (used or {}).items():
        found[f"uses {name}"] = uses_fact(code, name, selected)
    return found


def resource_facts(use: Resources, tool: str) -> dict[str, Fact]:
    """Spills, registers, shared bytes (with static ones, without the driver's reserve) and occupancy."""
    held = use.occupancy
    known = {
        "registers_per_thread": Fact(use.registers, "registers", Evidence.BINARY, tool),
        "shared_bytes": Fact(use.shared, "bytes", Evidence.BINARY, tool),
        "blocks_per_sm": Fact(held.blocks, "blocks", Evidence.BINARY, tool),
        "occupancy": Fact(held.blocks, "blocks", Evidence.BINARY, tool),
    }
    spilled = Evidence.UNKNOWN if use.spills is None else Evidence.BINARY
    return {"spills": Fact(use.spills, "bytes", spilled, tool), **known}


def injected_fact(code: Code) -> Fact:
    """Waits that ptxas put into the wgmma pipeline: advisories of that kind."""
    found = overlap.injected_waits(code.objects.log, code.kernel)
    return Fact(len(found), "", Evidence.BINARY, code.objects.version)


def count_fact(code: Code, name: str, level: str, selected: Selection | None = None) -> Fact:
    """Instructions of that name at "ptx" or "sass"; unknown for a name that stands for none there."""
    listing = code.listing(level)
    found = counting.count(listing, name, code.kernel, selected)
    return Fact(found, "", Evidence.UNKNOWN if found is None else Evidence.BINARY, listing.tool)


def uses_fact(code: Code, name: str, selected: Selection | None = None) -> Fact:
    """Whether the instruction stands in the selected part: in SASS, or in PTX for names without SASS."""
    for listing in (code.sass, code.ptx):
        found = counting.uses(listing, name, code.kernel, selected)
        if found is not None:
            return Fact(found, "", Evidence.BINARY, listing.tool)
    return Fact(None, "", Evidence.UNKNOWN, code.sass.tool)


def overlap_fact(code: Code, work: Selection, issued: Selection) -> Fact:
    """Share of the instructions of `work` that run, in steps that issue those of `issued`, while these are in
    flight."""
    found = overlap.overlapped(code.sass.of(code.kernel), work, issued)
    if found.steady is None:
        return Fact(None, "", Evidence.UNKNOWN, found.note)
    return Fact(found.steady, "", Evidence.BINARY, code.sass.tool)


def vector_width_fact(code: Code, selected: Selection) -> Fact:
    """Bytes of the narrowest global or shared access of the selected instructions, as the SASS has them."""
    found = counting.counts(code.sass, code.kernel, selected).accesses
    widths = [known.width for known in found if known.space != "local"]
    evidence = Evidence.BINARY if widths else Evidence.UNKNOWN
    return Fact(min(widths, default=None), "bytes", evidence, code.sass.tool)
