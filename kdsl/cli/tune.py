"""`kdsl tune RULE`: the values of `choose` that are fastest on a device, as a diff."""

from __future__ import annotations

from kdsl.cli.words import command_of
from kdsl.tune.program import parser, run

tune = command_of(parser(), run)
