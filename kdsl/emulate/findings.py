"""What the emulator found wrong with a kernel, and how often its shared accesses conflicted."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field, frozen

Place = tuple[int, int, int]

# Kinds that a correct kernel may have: work done twice, which changes no result.
HARMLESS = frozenset({"redundant"})
# What each kind says; `{...}` are fields of Finding, or of its sentence (see `explain`).
SENTENCES = {
    "race": "{access}: {what} of {where} {other_did}, and no barrier stands between the two",
    "unawaited": "{what} of {where}, to which the asynchronous copy of line {other_line} may still write: "
    "no wait of thread {other_thread} covers it",
    "unheard": "{what} of {where}, which the asynchronous copy of line {other_line} wrote: the thread has not "
    "waited for its arrival",
    "redundant": "write of {where}, to which {whose} writes the same bytes on line {other_line}; "
    "one thread would do",
    "uninitialised": "read of {where}, which nothing has written",
    "out_of_bounds": "{detail} of {bytes} bytes at byte {offset} of {array}, which is outside of it",
    "misaligned": "{detail} of {bytes} bytes at byte {offset} of {array}: no multiple of {bytes}",
    "changed_input": "write to {where}, which is an input",
    "unwritten": "{bytes} bytes of the output {array} were never written, the first at byte {offset}",
    "divergence": "thread waits at {waits_at} for thread {other_thread}, which is at {other_at} "
    "(line {other_line})",
    "absent_lane": "shuffle from lane {offset}, which takes no part in it",
    "left_out": "{detail} with the mask {mask}, which leaves out the thread itself",
    "unsettled": "register that a wgmma writes is used before a wait covers the product",
    "unordered": "wgmma with no wgmma.fence since the start or the last wait, when its registers were free to change",
    "unfenced": "read by the copy engine or tensor cores of {where}, which thread {other_thread} wrote on line "
    "{other_line} with no fence.proxy.async between",
    "overwritten": "write of {where}, which the copy engine or the tensor cores may still read: no wait covers that",
    "no_barrier": "{detail} at byte {offset} of {array}, where no mbarrier was initialised",
    "arrivals": "{detail}",
    "stuck": "waits for {detail}, and nothing will bring it on",
    "hang": "still running at the end of the time allowed",
    "crash": "the program faulted{fault}",
    "launch": "{detail}",
}


@frozen
class Finding:
    """One thing that is wrong, at a line of the CUDA text; `times` counts the same thing at the same place.

    `offset` and `bytes` are of the access in `array`. `line` is None for what no line did. Blocks and threads
    are (x, y, z), None where nobody is named; `other_thread` of a race with another block is None too.
    """

    kind: str
    kernel: str
    line: int | None = None
    block: Place | None = None
    thread: Place | None = None
    other_line: int | None = None
    other_thread: Place | None = None
    array: str = ""
    offset: int | None = None
    bytes: int | None = None
    detail: str = ""
    times: int = 1
    source: str = field(default="", repr=False)

    def explain(self) -> str:
        """One sentence with the place, what was done there, and by whom; the line of the text below it."""
        return self.sentence + (f"\n    {self.source}" if self.source else "")

    @property
    def sentence(self) -> str:
        place = self.kernel if self.line is None else f"{self.kernel}, line {self.line}"
        if self.thread is not None:
            place += f", block {self.block}, thread {self.thread}"
        count = f" ({self.times} times)" if self.times > 1 else ""
        return f"{self.kind}: {place}: {self._sentence()}{count}"

    def _sentence(self) -> str:
        if self.kind == "out_of_bounds" and self.array == "registers":
            return f"element {self.offset} of a local array of {self.bytes}"
        first, _, second = self.detail.partition("-after-")
        did = "wrote" if second == "write" else "read"
        whose = "another block" if self.other_thread is None else f"thread {self.other_thread}"
        waits_at, _, other_at = self.detail.partition("|")
        landed = self.kind == "unawaited" and self.other_thread is None
        return SENTENCES["unheard" if landed else self.kind].format(
            access=self.detail, what=first, where=f"byte {self.offset} of {self.array}",
            other_did=f"that {whose} {did} on line {self.other_line}",
            whose=whose, other_line=self.other_line, other_thread=self.other_thread, array=self.array,
            offset=self.offset, mask=f"{self.offset or 0:#010x}", bytes=self.bytes, detail=self.detail,
            waits_at=waits_at,
            other_at=other_at or "another place", fault=f" ({self.detail})" if self.detail else "",
        )  # fmt: skip


@frozen
class SharedTraffic:
    """The shared-memory accesses of one line: `access` is load, store, ldmatrix, stmatrix or cp.async.

    `bytes` are of one lane, `instructions` of a whole warp. `wavefronts` is what they took, `ideal` what the
    words they touched would take without conflicts; `worst` and `worst_ideal` are those of the worst
    instruction.
    """

    kernel: str
    line: int
    access: str
    bytes: int
    instructions: int
    wavefronts: int
    ideal: int
    worst: int
    worst_ideal: int

    @property
    def conflict(self) -> float:
        """Wavefronts by ideal; 1 is free of conflicts."""
        return self.wavefronts / self.ideal if self.ideal else 1.0

    def explain(self) -> str:
        return (
            f"{self.kernel}, line {self.line}: {self.instructions} {self.access} of {self.bytes} bytes a lane"
            f", {self.wavefronts} wavefronts where {self.ideal} would do; the worst took {self.worst} for "
            f"{self.worst_ideal}"
        )


def place_of(number: int, shape: Sequence[int]) -> Place | None:
    """(x, y, z) of a thread's number in its block."""
    if number < 0:
        return None
    x, y, _ = shape
    return number % x, number // x % y, number // (x * y)
