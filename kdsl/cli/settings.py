"""`--shape`, `--set` and `--choose`: texts to values, with errors that show the right form."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click


def parse_shape(context, parameter, text: str | None) -> dict[str, int]:
    """`B=1,T=8192,H=96` to sizes."""
    sizes: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in (text or "").split(","))):
        found = re.fullmatch(r"([A-Za-z_]\w*)\s*=\s*(\d+)", part)
        if found is None:
            raise click.BadParameter(f"`{part}` is not SIZE=NUMBER, as in B=1,T=8192,H=96,K=128,V=128")
        if found[1] in sizes:
            raise click.BadParameter(f"{found[1]} is given twice")
        sizes[found[1]] = int(found[2])
    return sizes


def parse_pairs(context, parameter, texts: Iterable[str]) -> dict[str, str]:
    """Repeated `NAME=VALUE` to a mapping."""
    pairs: dict[str, str] = {}
    for text in texts:
        for part in text.split(","):
            name, equals, value = (x.strip() for x in part.partition("="))
            if not equals or not name or not value:
                raise click.BadParameter(f"`{part}` is not NAME=VALUE, as in gate=bounded")
            if name in pairs:
                raise click.BadParameter(f"{name} is given twice")
            pairs[name] = value
    return pairs


def number_or_text(value: str) -> object:
    return int(value) if re.fullmatch(r"-?\d+", value) else value
