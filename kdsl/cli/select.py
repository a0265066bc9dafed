"""`kdsl select PATH... --target T --shape ...`: which rule claims a call, and why the others refuse."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

SCHEMA = 1
SHAPE_FORM = "NAME=NUMBER,NAME=NUMBER,... as in B=1,T=8192,H=96,K=128,V=128"


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", required=True, help="The GPU or CPU of the call.")
@click.option(
    "--shape",
    required=True,
    help="Sizes: B=1,T=8192,H=96,K=128,V=128. Sizes that follow from a law may be left out.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
              help="An option (gate=bounded), a dtype (q=bf16), or whether a tensor is there "
                   "(cu_seqlens=given).")  # fmt: skip
@click.option("--operator", help="The operator, where the rules schedule several.")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
def select(
    paths: tuple[Path, ...],
    target: str,
    shape: str,
    settings: tuple[str, ...],
    operator: str | None,
    form: str,
) -> None:
    """Which rule claims a call, at which choices, and what its contract says; why every other rule refuses.

    Exit status: 0 one rule claims it, 1 none does or several do, 2 the call or a path is wrong.
    """
    for path in paths:
        if not path.exists():
            raise click.UsageError(f"there is no file or folder `{path}`")
    from kdsl.contract.call import WrongCall
    from kdsl.contract.select import select as choose
    from kdsl.plan.remembered import check_and_derive

    sizes = read_shape(shape)
    result = check_and_derive(paths)
    library = result.library
    if target not in library.targets:
        raise click.UsageError(f"there is no target `{target}`; known: {', '.join(library.targets)}")
    if not result.ok:
        report_findings(result.diagnostics)
    name = the_operator(library, operator, sizes)
    try:
        dtypes, options, given = read_settings(library.operators[name], settings)
        selection = choose(library, target, name, sizes, dtypes, options, given)
    except WrongCall as wrong:
        raise click.UsageError(str(wrong)) from None
    if form == "json":
        click.echo(json.dumps(document(selection), indent=2))
    else:
        click.echo(text(selection), nl=False)
    sys.exit(0 if selection.chosen is not None else 1)


def report_findings(diagnostics) -> None:
    """Rules with errors are not asked; what is wrong with them goes to standard error."""
    from kdsl.source.render.text import render_text

    click.echo(render_text(diagnostics), err=True, nl=False)
    click.echo("rules with errors were not asked", err=True)


def read_shape(text: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        name, sign, value = (piece.strip() for piece in item.partition("="))
        if not sign or not name or not (value.isascii() and value.isdigit()) or len(value) > 18:
            raise click.UsageError(f"`{item}` is no size: --shape takes {SHAPE_FORM}")
        if name in sizes:
            raise click.UsageError(f"size `{name}` is said twice")
        sizes[name] = int(value)
    if not sizes:
        raise click.UsageError(f"--shape takes {SHAPE_FORM}")
    return sizes


def the_operator(library, asked: str | None, sizes: dict[str, int]) -> str:
    """The operator named, or the only one of the rules that has these sizes."""
    if asked is not None:
        if asked not in library.operators:
            raise click.UsageError(f"there is no operator `{asked}`; known: {', '.join(library.operators)}")
        return asked
    scheduled = list(dict.fromkeys(rule.operator for rule in library.rules.values())) or list(
        library.operators
    )
    fitting = [name for name in scheduled if set(sizes) <= set(library.operators[name].sizes)]
    if len(fitting) == 1 or (len(scheduled) == 1 and not fitting):
        return (fitting or scheduled)[0]
    if not fitting:
        known = "; ".join(f"{name}: {', '.join(library.operators[name].sizes)}" for name in scheduled)
        raise click.UsageError(f"no operator has the sizes {', '.join(sizes)}. {known}")
    first = first_by_required(library, fitting, sizes)
    if first is not None:
        return first
    raise click.UsageError(f"several operators fit: say --operator {' or --operator '.join(fitting)}")


def first_by_required(library, fitting: list[str], sizes: dict[str, int]) -> str | None:
    """The one operator whose tensors need no size beyond those that laws derive."""
    from kdsl.contract.call import WrongCall, complete_call

    whole = []
    for name in fitting:
        operator = library.operators[name]
        options = {
            key: option.values[0] for key, option in operator.options.items() if option.kind == "choice"
        }
        try:
            complete_call(operator, sizes, options=options)
        except WrongCall:
            continue
        whole.append(name)
    return whole[0] if len(whole) == 1 else None


def read_settings(operator, settings: tuple[str, ...]):
    """Dtypes, options and what is given, from NAME=VALUE texts."""
    from kdsl.contract.call import WrongCall

    dtypes: dict[str, str] = {}
    options: dict[str, object] = {}
    given: dict[str, bool] = {}
    for item in settings:
        name, sign, value = (piece.strip() for piece in item.partition("="))
        if not sign or not name or not value:
            raise WrongCall(f"`{item}` is no setting", "--set takes NAME=VALUE, as in gate=bounded or q=bf16")
        option = operator.options.get(name)
        if option is not None and option.kind == "scalar":
            options[name] = _scalar(name, value)
        elif option is not None:
            options[name] = (
                {"true": True, "false": False}.get(value, value) if option.kind == "bool" else value
            )
        elif value in ("given", "absent"):
            given[name] = value == "given"
        else:
            dtypes[name] = value
    return dtypes, options, given


def _scalar(name: str, value: str) -> float:
    from kdsl.contract.call import WrongCall

    try:
        return float(value)
    except ValueError:
        raise WrongCall(f"{name} = {value} is no number", f"--set {name}=-5.0") from None


# ---- the answer --------------------------------------------------------------------------------------------


def text(selection) -> str:
    """Who claims the call, with verdicts; then who refuses, with the reason."""
    lines = [f"call: {selection.call}"]
    lines += [f"  assumed: {item}" for item in selection.call.assumed]
    for claimed in selection.claims:
        lines += claim_lines(claimed)
    refused: dict[str, list] = {}
    for refusal in selection.refusals:
        refused.setdefault(refusal.rule, []).append(refusal)
    for rule, refusals in refused.items():
        lines.append(f"rule {rule} refuses:")
        for refusal in refusals:
            at = f" at {settings_text(refusal.choices)}" if refusal.choices else ""
            place = f"{refusal.span.path}:{refusal.span.line}"
            lines.append(f"  {refusal.found}{f'; {refusal.remedy}' if refusal.remedy else ''}{at}")
            lines.append(f"    {place}: needs {refusal.clause}")
            if refusal.message:
                lines.append(f"    {refusal.message}")
    if len(selection.claims) != 1 and not (selection.refusals and not selection.claims):
        from kdsl.source.render.text import render_text

        lines.append(render_text(selection.diagnostics).rstrip())
    if not selection.claims:
        lines.append(f"no rule claims the call on {selection.target.name}")
    return "\n".join(lines) + "\n"


def settings_text(values) -> str:
    from kdsl.contract.calls import value_text

    return ", ".join(f"{name} = {value_text(value)}" for name, value in values.items())


def claim_lines(claimed) -> list[str]:
    at = settings_text(claimed.point.choices)
    lines = [f"rule {claimed.rule.name} claims it" + (f" at {at}" if at else "")]
    form = settings_text(claimed.point.form)
    if form:
        lines.append(f"  form {form}")
    for verdict in claimed.verdicts:
        open_ = verdict.status.value in ("unknown", "pending")
        known = verdict.status.value if open_ else f"{verdict.status.value}, {verdict.evidence.value}"
        found = f": found {verdict.found}, needed {verdict.needed}" if verdict.found else ""
        note = f" ({verdict.note})" if verdict.note else ""
        lines.append(f"  {verdict.clause}: {known}{found}{note}")
    for refusal in claimed.passed_over:
        lines.append(f"  not at {settings_text(refusal.choices or {})}: {refusal}")
    return lines


def document(selection) -> dict:
    """The answer as data; `schema` counts its changes."""
    from kdsl.source.render.json import entry, place

    call = selection.call
    return {
        "schema": SCHEMA,
        "operator": selection.operator.name,
        "target": selection.target.name,
        "call": {"sizes": dict(call.sizes), "dtypes": dict(call.dtypes), "options": dict(call.options),
                 "given": dict(call.given), "assumed": list(call.assumed)},
        "selected": selection.chosen.rule.name if selection.chosen is not None else None,
        "claims": [
            {
                "rule": claimed.rule.name,
                "choices": dict(claimed.point.choices),
                "form": dict(claimed.point.form),
                "verdicts": [
                    {"clause": v.clause, "status": v.status.value, "evidence": v.evidence.value,
                     "found": v.found,
                     "needed": v.needed, "kernel": v.kernel, "note": v.note, "tools": list(v.tools),
                     "place": place(v.span)}
                    for v in claimed.verdicts
                ],
                "passed_over": [refused(r, place) for r in claimed.passed_over],
            }
            for claimed in selection.claims
        ],
        "refusals": [refused(r, place) for r in selection.refusals],
        "diagnostics": [entry(d) for d in selection.diagnostics],
    }  # fmt: skip


def refused(refusal, place) -> dict:
    return {
        "rule": refusal.rule, "clause": refusal.clause, "found": refusal.found, "needed": refusal.needed,
        "remedy": refusal.remedy, "message": refusal.message, "choices": dict(refusal.choices or {}),
        "place": place(refusal.span),
    }  # fmt: skip
