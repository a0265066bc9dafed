"""A call of an operator: sizes, dtypes, options and what is given, completed where the operator says how."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from kdsl.check.evaluate import decide
from kdsl.check.graph import strip
from kdsl.check.model import Operator, walk
from kdsl.check.operators import block
from kdsl.contract.calls import call_text
from kdsl.contract.conditions import dtypes_of, truth
from kdsl.syntax import nodes as n


@frozen
class WrongCall(Exception):
    """Something in the description of a call is not the operator's; `help` says what is."""

    message: str
    help: str = ""

    def __str__(self) -> str:
        return f"{self.message}; {self.help}" if self.help else self.message


@frozen
class Call:
    """`assumed` are values that nobody said, with the reason."""

    operator: Operator = field(repr=False)
    sizes: Mapping[str, int]
    dtypes: Mapping[str, str]
    options: Mapping[str, object]
    given: Mapping[str, bool]
    assumed: tuple[str, ...] = ()
    said: frozenset[str] = frozenset()  # dtypes and options that the caller named

    @property
    def env(self) -> dict[str, object]:
        """All of it by name, as requirements speak of it."""
        found: dict[str, object] = {**self.sizes, **self.options}
        found.update({f"dtype.{name}": dtype for name, dtype in self.dtypes.items()})
        found.update({f"given.{name}": value for name, value in self.given.items()})
        return found

    def __str__(self) -> str:
        options = self.operator.options
        shown = {}
        for key, value in self.env.items():
            name = key.partition(".")[2] or key
            scalar = name in options and options[name].kind == "scalar"
            if name in self.said or not (key.startswith("dtype.") or scalar):
                shown[key] = value
        return f"{self.operator.name} {call_text(self.operator, shown)}"


def complete_call(
    operator: Operator,
    sizes: Mapping[str, int],
    dtypes: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    given: Mapping[str, bool] | None = None,
) -> Call:
    """Sizes from the laws (`HV` as `H`, `N` as `B`), options from their defaults, dtypes from the first
    allowed.

    Raises WrongCall for a name or value that the operator does not have, and for a size that nothing derives.
    """
    _known(operator, sizes, dtypes or {}, options or {}, given or {})
    assumed: list[str] = []
    found_options = _options(operator, options or {})
    known_given = {
        name: (given or {}).get(name, False) for name, port in operator.ports.items() if port.optional
    }
    for name in dtypes or {}:
        if name in known_given and name not in (given or {}):
            known_given[name] = True
    _give(operator, found_options, known_given, given or {}, dtypes or {}, assumed)
    found_sizes = _sizes(operator, sizes, found_options, known_given, assumed)
    for name, value in decided_defaults(operator, found_options, found_sizes).items():
        found_options[name] = value
    said = frozenset((*(dtypes or {}), *(options or {})))
    return Call(
        operator,
        found_sizes,
        _dtypes(operator, dtypes or {}),
        found_options,
        known_given,
        tuple(assumed),
        said,
    )


def _known(operator: Operator, sizes, dtypes, options, given) -> None:
    for name, value in sizes.items():
        size = operator.sizes.get(name)
        if size is None:
            raise WrongCall(
                f"{operator.name} has no size `{name}`", f"its sizes are {', '.join(operator.sizes)}"
            )
        if (
            value < 0
            or (size.low is not None and value < size.low)
            or (size.high is not None and value > size.high)
        ):
            ends = f"{size.low if size.low is not None else 0}..{size.high if size.high is not None else ''}"
            raise WrongCall(f"{name} = {value} is outside {ends}", f"{operator.name} takes {name} in {ends}")
    for name, dtype in dtypes.items():
        if name not in operator.ports:
            raise WrongCall(
                f"{operator.name} has no tensor or option `{name}`", f"it has {', '.join(settable(operator))}"
            )
        allowed = dtypes_of(operator, name)
        if dtype not in allowed:
            raise WrongCall(f"{name} is never {dtype}", f"{operator.name} takes {', '.join(allowed)}")
    for name, value in options.items():
        option = operator.options.get(name)
        if option is None:
            raise WrongCall(
                f"{operator.name} has no option `{name}`", f"it has {', '.join(settable(operator))}"
            )
        if option.kind != "scalar" and value not in option.values:
            values = ", ".join(str(v).lower() for v in option.values)
            raise WrongCall(f"{name} is never {str(value).lower()}", f"its values are {values}")
    for name in given:
        if name not in operator.ports or not operator.ports[name].optional:
            optional = ", ".join(k for k, p in operator.ports.items() if p.optional)
            raise WrongCall(
                f"{operator.name} has no optional tensor `{name}`", f"these may be absent: {optional}"
            )


def settable(operator: Operator) -> list[str]:
    return [*operator.options, *operator.ports]


def _options(operator: Operator, options: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, option in operator.options.items():
        if name in options:
            found[name] = options[name]
        elif option.kind != "scalar":
            default = decide(option.default, {}) if option.default is not None else None
            if default is None and isinstance(option.default, n.Name):
                default = option.default.text
            if default is None:
                ways = " or ".join(f"--set {name}={str(v).lower()}" for v in option.values)
                raise WrongCall(f"`{name}` has no default in {operator.name}", f"say {ways}")
            found[name] = default
    return found


def decided_defaults(
    operator: Operator, options: Mapping[str, object], sizes: Mapping[str, int]
) -> dict[str, object]:
    """Scalars at their defaults, where sizes decide them (`scale`)."""
    found = {}
    for name, option in operator.options.items():
        if option.kind == "scalar" and name not in options and option.default is not None:
            value = decide(option.default, {**sizes, **options})
            if value is not None:
                found[name] = value
    return found


def _give(operator: Operator, options, given: dict[str, bool], said, dtypes, assumed: list[str]) -> None:
    """Optional tensors that a law needs, and nobody spoke of, are given."""
    for claim in operator.laws:
        env = {**options, **{f"given.{k}": v for k, v in given.items()}}
        if truth(claim.predicate, env) is not False:
            continue
        for node in walk(claim.predicate):
            if not (isinstance(node, n.Call) and node.function.text == "given" and node.arguments):
                continue
            name = getattr(node.arguments[0], "text", None)
            if name in said or name in dtypes or name not in given or given[name]:
                continue
            if truth(claim.predicate, {**env, f"given.{name}": True}) is True:
                given[name] = True
                why = claim.message.value if claim.message is not None else claim.predicate.span.text
                assumed.append(f"{name} given ({why})")
                break


def _sizes(
    operator: Operator, sizes: Mapping[str, int], options, given, assumed: list[str]
) -> dict[str, int]:
    found = dict(sizes)
    env = {**options, **{f"given.{k}": v for k, v in given.items()}}
    for _ in operator.sizes:
        for claim in operator.laws:
            if truth(claim.predicate, {**env, **found}) is None:
                derived = _derived(claim.predicate, {**env, **found}, operator)
                if derived is not None and derived[0] not in found:
                    found[derived[0]] = derived[1]
                    assumed.append(
                        f"{derived[0]} = {derived[1]} ({' '.join(claim.predicate.span.text.split())})"
                    )
    missing = [name for name in operator.sizes if name not in found]
    if missing:
        raise WrongCall(f"the sizes {', '.join(missing)} are missing and follow from no law"
                        if len(missing) > 1
                        else f"the size {missing[0]} is missing and follows from no law",
                        f"add {','.join(f'{name}=...' for name in missing)} to --shape")  # fmt: skip
    return found


def _derived(predicate: n.Node, env: Mapping[str, object], operator: Operator) -> tuple[str, int] | None:
    """From `X == Y`, `X % Y == 0` or `X >= Y`, where one side is known: the simplest value of the other."""
    node = strip(predicate)
    if isinstance(node, n.Logical) and node.operator == "or":
        open_sides = [side for side in (node.left, node.right) if truth(side, env) is not False]
        return (
            _derived(open_sides[0], env, operator)
            if len(open_sides) == 1 or _sizes_only(open_sides[:1], operator)
            else None
        )
    if not isinstance(node, n.Comparison) or node.operator not in ("==", ">="):
        return None
    left, right = strip(node.left), strip(node.right)
    if isinstance(left, n.Binary) and left.operator == "%":
        left, right = strip(left.left), strip(left.right)
    for unknown, known in ((left, right), (right, left)):
        value = decide(known, env)
        if (
            isinstance(unknown, n.Name)
            and unknown.text in operator.sizes
            and unknown.text not in env
            and isinstance(value, int)
        ):
            return unknown.text, value
    return None


def _sizes_only(sides, operator: Operator) -> bool:
    return bool(sides) and all(
        name.text in operator.sizes for side in sides for name in walk(side) if isinstance(name, n.Name)
    )


def _dtypes(operator: Operator, dtypes: Mapping[str, str]) -> dict[str, str]:
    """Said, else as the port it is like or is declared with, else the first that the operator lists."""
    found: dict[str, str] = {}
    beside = {x.text: line.names for side in ("inputs", "outputs")
              for line in block(operator.declaration.items, side)
              for x in line.names}  # fmt: skip
    for name, port in operator.ports.items():
        same = next((x.text for x in beside.get(name, ()) if x.text in dtypes), None)
        if name in dtypes:
            found[name] = dtypes[name]
        elif same is not None:
            found[name] = dtypes[same]
        elif port.like and port.like[0] in found:
            found[name] = found[port.like[0]]
        else:
            found[name] = next(iter(dtypes_of(operator, name)), "f32")
    for name, port in operator.ports.items():
        allowed = {*(found[other] for other in port.like if other in found), *port.dtypes}
        if found[name] not in allowed:
            likes = " or ".join(
                [*(f"that of {other}, {found[other]}" for other in port.like if other in found), *port.dtypes]
            )
            raise WrongCall(f"{name} is {found[name]}", f"its dtype is {likes}")
    return found
