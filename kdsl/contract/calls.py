"""A call as text: the options of `kdsl select` that describe it."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.check.evaluate import decide
from kdsl.check.model import Operator


def value_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def speaks(operator: Operator, name: str, call: Mapping[str, object]) -> bool:
    """Whether an option means anything in the call: its condition does not fail."""
    option = operator.options.get(name)
    return option is None or option.condition is None or decide(option.condition, call) is not False


def call_text(operator: Operator, call: Mapping[str, object]) -> str:
    """`--shape B=1,T=1,... --set gate=bounded --set q=bf16`: options at their defaults are left out."""
    sizes = ",".join(f"{name}={call[name]}" for name in operator.sizes if name in call)
    settings = []
    for name, option in operator.options.items():
        if (
            name in call
            and speaks(operator, name, call)
            and not (option.kind == "bool" and call[name] is (decide(option.default, {}) if option.default else False))
        ):
            settings.append(f"{name}={value_text(call[name])}")
    for port in operator.ports:
        if f"dtype.{port}" in call:
            settings.append(f"{port}={call[f'dtype.{port}']}")
        elif call.get(f"given.{port}"):
            settings.append(f"{port}=given")
    return " ".join([f"--shape {sizes}", *(f"--set {s}" for s in settings)])
