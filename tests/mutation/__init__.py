"""Mutants of rules, operators, generated code and contracts, and which stage of kdsl rejects each.

`python -m tests.mutation list` writes the table, `run` judges every mutant of it (resumable), `report` writes
docs/mutation.md from the log.
"""
