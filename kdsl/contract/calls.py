"""A call as text: the options of `kdsl select` that describe it."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.check.model import Operator


def value_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def call_text(operator: Operator, call: Mapping[str, object]) -> str:
    """`--shape B=1,T=1,... --set gate=bounded --set q=bf16`: options at their defaults are left out."""
    sizes = ",".join(f"{name}={call[name]}" for name in operator.sizes if name in call)
    settings = []
    for name, option in operator.options.items():
        if name in call and not (option.kind == "bool" and call[name] is False):
            settings.append(f"{name}={value_text(call[name])}")
    for name, value in call.items():
        head, _, port = name.partition(".")
        if head == "dtype":
            settings.append(f"{port}={value}")
        elif head == "given" and value and f"dtype.{port}" not in call:
            settings.append(f"{port}=given")
    return " ".join([f"--shape {sizes}", *(f"--set {s}" for s in settings)])
