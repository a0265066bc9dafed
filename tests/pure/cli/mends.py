"""How a reader of the messages alone mends each mistake: steps of (what stands there, what is written for it).

Every word that a step writes stands in a message or in the file itself; a step that follows another one answers the
message that the file gets after it.
"""

NEW_NAME = "other"  # where a message asks for another name

MENDS: dict[str, tuple[tuple[str, str], ...]] = {
    "acceptance_misspelt": (("kda.acceptence", "kda.acceptance"),),
    "always_met": (("K >= 16 and ", ""),),
    "ampersands": (("&&", "and"),),
    "axis_of_another_machine": (("x : n", "task : n"),),
    "block_in_the_wrong_place": (("  place { state : f32 in stack }\n", ""),),
    "call_asked_too_little": (
        ("  choose {", "    gate is bounded and C * lower_bound >= -80.0\n  choose {"),
        (
            "  }\n    gate is bounded and C * lower_bound >= -80.0\n",
            "    gate is bounded and C * lower_bound >= -80.0\n  }\n",
        ),
    ),
    "choice_misspelt": (("by widht", "by width"),),
    "choice_not_used": (("; depth in [1, 2] default 1", ""),),
    "computed_twice": (("update, read_key", "update"),),
    "default_is_no_value": (("default 12", "default 8"),),
    "dtype_by_another_name": (("float32", "f32"),),
    "dtype_never_taken": ((", i64", ""),),
    "equals_sign": (("16 = 0", "16 == 0"),),
    "file_not_there": (('use "house/tactics.kds"\n', ""),),
    "foreign_unit": (("4 MB", "4 MiB"),),
    "form_left_open": (("decay = factored\n", "decay = factored\n    chain = split\n"),),
    "form_misspelt": (("splitted", "split"),),
    "grid_over_an_ordered_index": ((", t }", " }"),),
    "index_misspelt": (("vector ee", "vector e"),),
    "instruction_misspelt": (("fma.f23", "fma.f32"),),
    "instruction_the_target_lacks": (("wgmma.m64k16", "fma.f32"),),
    "kernel_left_out": (
        (
            "  ensure {",
            "  kernel recurrence computes recur "
            "{ grid { x : n; y : h; z : e by v_tile }; apply mma_recurrence(v_tile, depth) }\n  ensure {",
        ),
    ),
    "keyword_misspelt": (("kernal", "kernel"),),
    "level_left_out": (("count(shfl.sync)", "count(shfl.sync) at ptx"),),
    "limit_misspelt": (("target.stack_bytes\n", "target.stack_bytes_per_task\n"),),
    "measured_in_ensure": (
        ("    p95_latency <= 1 ms\n", ""), ("  ensure {", "  measure { p95_latency <= 1 ms }\n  ensure {"),
    ),
    "memory_by_another_name": (("smem", "stack"),),
    "memory_of_another_machine": (("in shared", "in stack"),),
    "missing_brace": (("    place\n", "    place {\n"),),
    "missing_colon": (("sd   f32", "sd : f32"),),
    "missing_comma": (("q k", "q, k"),),
    "never_met": (("K == 8 and ", ""),),
    "no_such_target": (("gpu", "cpu"),),
    "operator_misspelt": (("kda.decod ", "kda.decode "),),
    "option_in_form": (("  form { gate = bounded }\n", ""), ("  }\n", "    gate is bounded\n  }\n")),
    "part_misspelt": (("steps", "step"),),
    "percent_of_nothing": (("95%", "95% of target.shared_bytes_per_block"),),
    "placed_twice": ((", oq, sd ", ", oq "),),
    "promise_in_require": (
        ("    stack_bytes <= 1 MiB\n", ""), ("  ensure {\n", "  ensure {\n    stack_bytes <= 1 MiB\n"),
    ),
    "request_in_ensure": (("    K % 16 == 0\n", ""), ("  require {\n", "  require {\n    K % 16 == 0\n")),
    "rounding_not_offered": (("bf16 in stack", "f32 in stack"),),
    "same_name_twice": (("}\n\nrule mine ", "}\n\nrule other "),),
    "shared_over_budget": (("depth in 2..20", "depth in 2..9"),),
    "size_where_a_number_must_stand": (("e by V", "e by width"),),
    "slashes_comment": (("//", "#"),),
    "stage_misspelt": (("read_keys", "read_key"),),
    "tactic_misspelt": (("mma_recurence", "mma_recurrence"),),
    "tensor_misspelt": (("skk", "sk"),),
    "tile_does_not_divide": ((", 48]", "]"),),
    "too_many_arguments": (("(v_tile, depth, 2)", "(v_tile, depth)"),),
    "trailing_comma": (("b,     :", "b     :"),),
    "two_items_on_a_line": (("default 8 wide", "default 8; wide"), ("; wide in [1, 2]", "")),
    "two_rules_for_one_call": (
        ("  require {\n", "  require {\n    K == 128\n"),
        ("  require {\n    q, k", "  require {\n    K != 128\n    q, k"),
    ),
    "unclosed_brace": (("by width\n    }\n", "by width\n    }\n  }\n"),),
    "unclosed_doc_string": (("head.\n", 'head."""\n'),),
    "unit_left_out": (("4194304", "4194304 bytes"),),
    "value_left_out": (("vector e by\n", "vector e by 8\n"),),
}
