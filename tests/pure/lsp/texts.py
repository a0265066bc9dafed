"""Large files made of the shipped rules, for the tests of speed."""

from __future__ import annotations

from kdsl.data import data_root

RULE = data_root() / "rules" / "kda.chunk_forward" / "cpu_split.kds"
OPERATOR = data_root() / "stdlib" / "operators" / "kda.chunk_forward.kds"


def large(lines: int) -> str:
    """An operator of its own and as many rules as make `lines` lines; no two rules claim one call."""
    operator = (
        OPERATOR.read_text("utf-8")
        .replace("operator kda.", "operator my.")
        .replace("acceptance kda.", "acceptance my.")
    )
    parts, count = [operator], operator.count("\n")
    rule = RULE.read_text("utf-8")
    while count < lines:
        name = f"rule{len(parts)}"
        part = rule.replace("rule cpu_split", f"rule {name}").replace(
            "require {", f"require {{\n    T == {len(parts)}", 1
        )
        parts.append(part)
        count += part.count("\n") + 1
    return "\n".join(parts)
