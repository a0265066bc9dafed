"""`kdsl bench PATH...`: times of the published cases on this machine's device."""

from __future__ import annotations

from kdsl.bench.program import parser, run
from kdsl.cli.words import command_of

bench = command_of(parser(), run)
