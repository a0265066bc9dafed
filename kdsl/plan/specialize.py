"""What a kernel is compiled for when nobody made a call: the rule's own requirements, then the operator's defaults."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from kdsl.check.evaluate import decide
from kdsl.check.model import DTYPE_BYTES, Operator, Rule, Specialization
from kdsl.plan.layout import layout_options, port_lines
from kdsl.syntax import nodes as n

DEFAULT_SIZE = 128


@frozen
class SettingRefused(Exception):
    """A dtype, option or size that was asked for and that the operator does not have."""

    name: str
    found: str
    needed: str

    def __str__(self) -> str:
        return f"{self.name} = {self.found}: needed {self.needed}"


def specialize(
    operator: Operator,
    rule: Rule,
    dtypes: Mapping[str, str] = {},
    options: Mapping[str, object] = {},
    sizes: Mapping[str, int] = {},
) -> Specialization:
    """Fill in what was not asked for. Raises SettingRefused for a name or value the operator does not have."""
    check_names(operator, dtypes, options)
    return Specialization(
        _dtypes(operator, rule, dtypes), _options(operator, rule, options), _sizes(operator, rule, sizes)
    )


def check_names(operator: Operator, dtypes: Mapping[str, str], options: Mapping[str, object]) -> None:
    for name, dtype in dtypes.items():
        port = operator.ports.get(name)
        if port is None:
            raise SettingRefused(name, dtype, f"a tensor or option of {operator.name}: {', '.join(settable(operator))}")
        allowed = port_dtypes(operator, name)
        if dtype not in allowed:
            raise SettingRefused(name, dtype, " or ".join(allowed))
    for name, value in options.items():
        option = operator.options.get(name)
        if option is None or option.kind == "scalar":
            raise SettingRefused(name, str(value), f"an option of {operator.name}: {', '.join(settable(operator))}")
        if value not in option.values:
            raise SettingRefused(name, str(value).lower(), " or ".join(str(v).lower() for v in option.values))


def settable(operator: Operator) -> list[str]:
    return [name for name, o in operator.options.items() if o.kind != "scalar"] + list(operator.ports)


def parse_setting(operator: Operator, name: str, text: str) -> object:
    """The value of `--set name=text`: a switch as bool, everything else as it is."""
    option = operator.options.get(name)
    if option is not None and option.kind == "bool" and text in ("true", "false"):
        return text == "true"
    return text


def port_dtypes(operator: Operator, name: str) -> tuple[str, ...]:
    """Every dtype a port may have."""
    port = operator.ports[name]
    found = [d for other in port.like for d in port_dtypes(operator, other)] + list(port.dtypes)
    return tuple(dict.fromkeys(found))


def _dtypes(operator: Operator, rule: Rule, asked: Mapping[str, str]) -> dict[str, str]:
    """Asked for; else as the port it is like, or that it is declared with; else the first that the rule allows."""
    required = _required_dtypes(rule)
    beside = {name.text: line.names[0].text for line in port_lines(operator) for name in line.names}
    found: dict[str, str] = {}
    for name, port in operator.ports.items():
        allowed = required.get(name, port_dtypes(operator, name))
        models = [*port.like, beside[name]]
        following = next((found[m] for m in models if m in found and found[m] in allowed), None)
        found[name] = asked.get(name) or following or allowed[0]
    return found


def _required_dtypes(rule: Rule) -> dict[str, tuple[str, ...]]:
    return {
        name.text: tuple(dtype.name for dtype in claim.predicate.dtypes)
        for claim in rule.require
        if isinstance(claim.predicate, n.Typed) and claim.predicate.dtypes[0].name in DTYPE_BYTES
        for name in claim.predicate.names
    }


def _options(operator: Operator, rule: Rule, asked: Mapping[str, object]) -> dict[str, object]:
    """A value for every static option: asked for, required, the default, or the first that the rule allows."""
    found: dict[str, object] = {}
    by_strides, _ = layout_options(operator, rule)
    for name, option in operator.options.items():
        if option.kind == "scalar" or name in by_strides:
            continue
        default = decide(option.default, {}) if option.default is not None else None
        values = [asked[name]] if name in asked else [v for v in (default, *option.values) if v is not None]
        found[name] = next((value for value in values if allowed(rule, {name: value})), values[0])
    return found


def allowed(rule: Rule, settings: Mapping[str, object]) -> bool:
    """No requirement is decided against these settings alone."""
    return all(
        decide(claim.predicate, settings) is not False
        for claim in rule.require
        if not isinstance(claim.predicate, (n.Typed, n.Uses, n.Within))
    )


def _sizes(operator: Operator, rule: Rule, asked: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in operator.static_sizes:
        size = operator.sizes[name]
        value = asked.get(name)
        if value is None:
            value = next((v for v in _candidates(size) if allowed(rule, {name: v})), DEFAULT_SIZE)
        if (size.low is not None and value < size.low) or (size.high is not None and value > size.high):
            raise SettingRefused(name, str(value), f"from {size.low} to {size.high}")
        found[name] = value
    return found


def _candidates(size) -> list[int]:
    low, high = size.low or 1, size.high or DEFAULT_SIZE
    return [DEFAULT_SIZE, *range(high, low - 1, -1)] if low <= DEFAULT_SIZE <= high else list(range(high, low - 1, -1))
