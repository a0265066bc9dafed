"""Operators on generated CUDA whose warps have roles: slots and their phases, fences, products of warp groups."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .cuda_text import body_start, dropped, in_body, in_helpers
from .cuda_values import arguments
from .mutant import Edit, Edits, Operator, each, every_of

SLOT = r"^ *kdsl_slot_(?:wait|say)(\()"
ROUND = r"^ *kdsl_slot_wait(\()"
DESCRIPTOR = r"\| (0x[0-9a-f]+)ull"
FIELDS = {"distance of rows": 16, "distance of cores": 32, "swizzle": 62}  # the first bit of each


def argument(pattern: str, number: int, change: str) -> Operator:
    """Calls in the body with one argument changed; `{}` stands for it."""

    def operator(text: str) -> Iterator[Edits]:
        begin = body_start(text)
        for found in re.finditer(pattern, text[begin:], re.MULTILINE):
            places = arguments(text, begin + found.start(1))
            if number < len(places):
                start, end = places[number]
                yield (Edit(start, end, change.format(text[start:end].strip())),)

    return operator


def other_field(text: str) -> Iterator[Edits]:
    """A bit of a field of an operand's descriptor turned over."""
    for found in re.finditer(DESCRIPTOR, text):
        for bit in FIELDS.values():
            yield (Edit(found.start(1), found.end(1), f"{int(found[1], 16) ^ 1 << bit:#018x}"),)


ROLES: dict[str, Operator] = {
    "drop_slot_wait": dropped(r"kdsl_slot_wait\([^\n]*\);"),
    "drop_slot_say": dropped(r"kdsl_slot_say\([^\n]*\);"),
    "other_slot": in_body(argument(SLOT, 1, "(({}) ^ 1)")),
    "round_before": in_body(argument(ROUND, 2, "({}) - 1")),
    "round_ahead": in_body(argument(ROUND, 2, "({}) + 1")),
    "other_ring": in_body(each(r"kdsl_(full|empty)(?=, )", lambda m: {"full": "empty", "empty": "full"}[m[1]], 1)),
    "arrivals": every_of(
        argument(r"^ *kdsl_slot_init(\()", 1, "({}) - 32"), argument(r"^ *kdsl_slot_init(\()", 1, "({}) + 32")
    ),
    "one_thread_says": in_body(each(r"^ *(?=kdsl_slot_say)", "if (threadIdx.x == 0) ")),
    "drop_warps_barrier": dropped(r"kdsl_warps_barrier\([^\n]*\);"),
    "barrier_of_others": in_body(argument(r"^ *kdsl_warps_barrier(\()", 0, "1")),
    "drop_warp_sync": dropped(r"kdsl_warp_sync\(\);"),
    "drop_proxy_fence": dropped(r"kdsl_fence_shared\(\);"),
    "drop_group_fence": in_helpers(each(r'^ *"wgmma\.fence[^\n]*$', "")),
    "drop_group_wait": in_helpers(each(r"wgmma\.wait_group\.sync\.aligned 0;", "")),
    "group_still_open": in_helpers(each(r"wgmma\.wait_group\.sync\.aligned (0);", "1", 1)),
    "drop_group_product": in_helpers(each(r'^ *"wgmma\.mma_async[^\n]*$', "")),
    "group_product_anew": in_helpers(each(r"setp\.ne\.b32 add, (1), 0;", "0", 1)),
    "group_operand_turned": in_helpers(
        each(r"add, 1, 1, (\d);", lambda m: str(1 - int(m[1])), 1)
    ),
    "descriptor_field": in_helpers(other_field),
    "descriptor_step": in_helpers(each(r'"l"\(b \+ (\d+)\)', lambda m: str(int(m[1]) + 2), 1)),
    "role_border": in_body(each(r"if \(kdsl_warp < (\d+)\)", lambda m: str(int(m[1]) + 1), 1)),
    "group_of_warp": in_body(each(r"\(kdsl_warp - (\d+)\) / \d+", lambda m: str(int(m[1]) + 1), 1)),
    "ring_of_role": in_body(each(r"kdsl_shared \+ (\d+)", lambda m: str(int(m[1]) + 16), 1)),
}  # fmt: skip
