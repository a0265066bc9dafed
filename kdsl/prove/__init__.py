"""Proofs over finite fields that a scheduled program computes its operator. TVM and NumPy come with the
first proof.

    proof = prove(lowering)             # field, rejected or unknown, and everything the verdict rests on
    holds, evidence, found, needed = verdict(lowering)      # for the contract `same_algorithm`

The idea is that of Mirage (Wu et al., OSDI 2025): programs of + - * / and exp are compared on random
elements of finite fields, where equality is exact, and a difference goes unseen with a probability that the
lemma of Schwartz and Zippel bounds.
"""

from __future__ import annotations


def prove(lowering, *arguments, **options):
    """See `kdsl.prove.lowered.prove`."""
    from kdsl.prove import lowered

    return lowered.prove(lowering, *arguments, **options)


def verdict(lowering, **options):
    """See `kdsl.prove.lowered.verdict`."""
    from kdsl.prove import lowered

    return lowered.verdict(lowering, **options)
