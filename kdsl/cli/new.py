"""`kdsl new rule|operator|target NAME`: a file to start from, which checks as it is."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

KINDS = ("rule", "operator", "target")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_0-9]*[A-Za-z_][A-Za-z0-9_]*)*")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.option(
    "--schedules", "operator", metavar="OPERATOR", help="rule: the operator; kda.chunk_forward if not said."
)
@click.option("--on", "target", metavar="TARGET", help="rule: the target; cpu if not said.")
@click.option("--extends", metavar="TARGET", help="target: what it extends; sm_90a if not said.")
@click.option(
    "--use",
    "used",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="rule, target: a file of yours that declares the operator or the target.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="The file; NAME.kds in this folder if not said. - prints it.",
)
def new(
    kind: str,
    name: str,
    operator: str | None,
    target: str | None,
    extends: str | None,
    used: Path | None,
    output: Path | None,
) -> None:
    """Write a rule, an operator or a target that checks, with comments that say what to change.

    \b
      kdsl new rule my_rule --schedules kda.decode --on cpu
      kdsl new operator scale_rows
      kdsl new rule scale_fast --schedules scale_rows --use scale_rows.kds
      kdsl new target sm_90b --extends sm_90a

    A rule for the CPU is made from the operator. One for another target starts as a copy of a shipped rule.
    Exit: 0 written, 2 a name is wrong or the file is there already.
    """
    _refuse_foreign(kind, operator, target, extends, used)
    if not NAME.fullmatch(name):
        raise click.UsageError(f"`{name}` is no name: letters, digits and `_`, with dots between")
    library = _library(used) if kind != "operator" else None
    made = _text(kind, name, operator or "kda.chunk_forward", target or "cpu", extends or "sm_90a", library)
    folder = Path(".") if output is None or str(output) == "-" else output.parent
    uses = f'use "{Path(os.path.relpath(used, folder)).as_posix()}"\n\n' if used is not None else ""
    text = _formatted(uses + made)
    if str(output) == "-":
        click.echo(text, nl=False)
        return
    path = output or Path(f"{name}.kds")
    if path.exists():
        raise click.UsageError(f"`{path}` is there already: take another name or --output")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise click.UsageError(f"`{path}` cannot be written: {error.strerror or error}") from None
    click.echo(f"{path} written; next: kdsl check {path}", err=True)


def _refuse_foreign(
    kind: str, operator: str | None, target: str | None, extends: str | None, used: Path | None
) -> None:
    """An option that this kind does not take is an error, not silence."""
    given = {"--schedules": operator, "--on": target, "--extends": extends, "--use": used}
    takes = {"rule": ("--schedules", "--on", "--use"), "operator": (), "target": ("--extends", "--use")}[kind]
    for option, value in given.items():
        if value is not None and option not in takes:
            raise click.UsageError(f"{option} is not for a new {kind}")


def _library(used: Path | None):
    """The standard library, and what a file declares besides."""
    if used is None:
        from kdsl.check.library import load

        return load()
    from kdsl.check import check_paths

    result = check_paths([used])
    if not result.ok:
        raise click.UsageError(f"`{used}` has errors of its own: kdsl check {used}")
    return result.library


def _text(kind: str, name: str, operator: str, target: str, extends: str, library) -> str:
    if kind == "operator":
        return OPERATOR.replace("NAME", name)
    if kind == "target":
        return _target(name, _known("target", extends, library.targets))
    return _rule(
        name,
        _known("operator", operator, library.operators),
        _known("target", target, library.targets),
        library,
    )


def _known(kind: str, name: str, table):
    if name in table:
        return table[name]
    from difflib import get_close_matches

    near = get_close_matches(name, table, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(table)}; --use FILE adds those of a file"
    raise click.UsageError(f"there is no {kind} `{name}`; {hint}")


def _formatted(text: str) -> str:
    from kdsl.syntax.print import format_text

    return format_text(text)


# ---- operator, target ----

OPERATOR = '''operator NAME {
  """What it computes, in one sentence. A rule places this graph; it cannot change it."""
  sizes {
    B                                  # rows; known when a kernel is launched
    D in 16..256                       # channels; a kernel is compiled for each value
  }
  inputs { x : [B, D] of bf16, f32 }
  outputs { y : [B, D] of like x }
  options { scale in f32 default 1.0 }
  indices {
    n in B parallel                    # a loop around the graph
    d in D                             # an axis of its tensors
  }
  views {                              # a graph tensor belongs to one n
    xx[d] = x[n, d]
    yy[d] = y[n, d]
  }
  part all {
    square : s[] = sum over d of xx[d] * xx[d]
    unit   : z[d] = xx[d] * rsqrt(s[] + 1e-6) * scale
    write  : yy[d] = z[d]
  }
  acceptance NAME.acceptance {
    finite(y)
    rms_error(y) <= 0.01
  }
}
'''


def _target(name: str, base) -> str:
    """A target with the limits of the one that it extends, to be changed."""
    kept = [
        f for f in ("tool", "sms", "l2", "shared_bytes_per_block", "stack_bytes_per_task") if f in base.fields
    ]
    lines = [f"  {field} = {_value(base.fields[field])}" for field in kept]
    return "\n".join([
        f"target {name} extends {base.name} {{",
        f'  """Which machine it is. What is not said is as in {base.name}."""',
        *lines,
        "  # has NAME, NAME and lacks NAME, NAME say what instructions it has beside those of the other",
        "}", "",
    ])  # fmt: skip


def _value(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, int) and value >= 1024 and value % 1024 == 0:
        return f"{value >> 20} MiB" if value % (1 << 20) == 0 else f"{value >> 10} KiB"
    return str(value)


# ---- rule ----


def _rule(name: str, operator, target, library) -> str:
    if target.family != "cpu":
        return _copied(name, operator, target)
    from kdsl.check.graph import build_graph

    form = {p.name: p.values[0] for p in operator.parameters.values() if p.values and p.condition is None}
    form |= {either: _free_case(operator, either, cases) for either, cases in operator.forms.items()
             if either not in operator.defaults}  # fmt: skip
    options = {o.name: (False if o.kind == "bool" else o.values[0]) for o in operator.options.values()}
    graph = build_graph(operator, {**options, **form})
    homes = dict.fromkeys(stage.tensor for stage in graph.stages if stage.tensor not in operator.views)
    homes |= dict.fromkeys(carry.tensor for carry in graph.carries)
    parts = [part for part in operator.parts if graph.of_parts((part,)).stages]
    parallel = [index.name for index in operator.indices.values() if index.mode == "parallel"]
    lines = [
        f"rule {name} schedules {operator.name} on {target.name} {{",
        '  """What this rule is good for."""',
        *_block("form", [f"{key} = {value}" for key, value in form.items()]),
        f"  kernel all computes {', '.join(parts)} {{",
        f"    grid {{ task : {', '.join(parallel)} }}" if parallel else "",
        "    place {",
        *(f"      {', '.join(group)} : f32 in stack" for group in _groups(list(homes))),
        "    }",
        "    # compute { STAGE : fma.f32 vector INDEX by 8 } says how; all else is derived",
        "  }",
        *_block("ensure", _claims(operator, target)),
        "}",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _free_case(operator, either: str, cases: tuple[str, ...]) -> str:
    """An alternative that asks nothing of the call, if there is one."""
    from kdsl.check.model import walk
    from kdsl.syntax import nodes as n

    asking = {case.name.text for node in walk(operator.declaration) if isinstance(node, n.Either)
              and node.name.text == either for case in node.cases if case.requires is not None}  # fmt: skip
    return next((case for case in cases if case not in asking), cases[0])


def _groups(names: list[str], width: int = 80) -> list[list[str]]:
    """Names in lines that are not too long."""
    groups: list[list[str]] = [[]]
    for name in names:
        if groups[-1] and len(", ".join([*groups[-1], name])) > width:
            groups.append([])
        groups[-1].append(name)
    return [group for group in groups if group]


def _block(keyword: str, items: list[str]) -> list[str]:
    return [f"  {keyword} {{", *(f"    {item}" for item in items), "  }"] if items else []


def _claims(operator, target) -> list[str]:
    """What can be decided without a GPU; the error only of operators that kdsl has an oracle for."""
    from kdsl.check.library import load

    claims = ["stack_bytes <= target.stack_bytes_per_task"] if "stack_bytes_per_task" in target.fields else []
    if operator.acceptance is not None and operator.name in load().operators:
        claims.append(f"error within {operator.acceptance.name.text}")
    return claims


def _copied(name: str, operator, target) -> str:
    """A shipped rule for this operator and target under another name."""
    from kdsl.data import data_root
    from kdsl.syntax import nodes as n
    from kdsl.syntax.parse import parse_file

    others = set()
    for path in sorted((data_root() / "rules").rglob("*.kds")):
        for rule in parse_file(path).declarations:
            if not isinstance(rule, n.Rule) or rule.operator.text != operator.name:
                continue
            if target.name in [t.text for t in rule.targets]:
                first, last = rule.name.span.first - rule.span.first, rule.name.span.last - rule.span.first
                text = rule.span.text
                return f"# Begun as a copy of rule {rule.name.text}.\n{text[:first]}{name}{text[last:]}\n"
            others |= {t.text for t in rule.targets}
    known = f"there are some for {', '.join(sorted(others))}; " if others else ""
    raise click.UsageError(
        f"no shipped rule schedules {operator.name} on {target.name}; {known}--on cpu needs none"
    )
