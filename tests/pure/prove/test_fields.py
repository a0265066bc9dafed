"""The tower of fields and the recurrence over it, without TVM."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdsl.prove.algebra import Degrees, Elements, LevelMismatch
from kdsl.prove.fields import Tower, draw_chain, is_prime
from kdsl.prove.recurrence import Call, chunk_forward, decode, port_levels


@pytest.fixture
def tower():
    return Tower.draw(np.random.default_rng(7), 4)


def test_primes_against_trial_division():
    small = [n for n in range(2, 3000) if all(n % d for d in range(2, int(n**0.5) + 1))]
    assert [n for n in range(3000) if is_prime(n)] == small
    assert is_prime(2**31 - 1) and not is_prime(2**31 - 3) and not is_prime(46337 * 46327)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_a_chain_is_drawn_at_random(depth):
    rng = np.random.default_rng(3)
    chains = {draw_chain(rng, depth) for _ in range(5)}
    assert len(chains) == 5
    for chain in chains:
        assert len(chain) == depth and 1 << 30 <= chain[0] < 1 << 31 and all(map(is_prime, chain))
        assert all(a == 2 * b + 1 for a, b in zip(chain, chain[1:], strict=False))


def test_exp_is_a_homomorphism_between_levels(tower):
    rng = np.random.default_rng(0)
    for level in range(3):
        above, p = tower.primes[level + 1], tower.primes[level]
        x, y = (tower.elements(rng, (50,), level + 1) for _ in range(2))
        both = tower.exp((x + y) % np.uint64(above), level)
        assert np.array_equal(both, tower.exp(x, level) * tower.exp(y, level) % np.uint64(p))
        assert [int(v) for v in tower.exp(x, level)] == [pow(tower.roots[level], int(v), p) for v in x]


def test_sigmoid_never_divides_by_zero(tower):
    """1 + exp(-x) = 0 asks for -1 to be a square, which it is in no field of the tower."""
    for p in tower.primes[:-1]:
        assert p % 4 == 3 and pow(p - 1, (p - 1) // 2, p) == p - 1


def test_inverse(tower):
    x = tower.elements(np.random.default_rng(0), (20,), 1)
    assert (x * tower.inverse(x, 1) % np.uint64(tower.primes[1]) == 1).all()
    with pytest.raises(ZeroDivisionError):
        tower.inverse(np.array([0], np.uint64), 0)


def test_random_functions_are_functions_and_know_their_kind(tower):
    x = tower.elements(np.random.default_rng(0), (1000,), 0)
    sqrt, log = (tower.random_function(kind, x, 0, 0) for kind in (0, 1))
    assert np.array_equal(sqrt, tower.random_function(0, x, 0, 0)) and not np.array_equal(sqrt, log)
    assert len(set(sqrt.tolist())) == 1000 and (sqrt > 0).all() and (sqrt < tower.primes[0]).all()


def test_levels_do_not_mix(tower):
    a, b = (Elements(tower, level, np.array([3], np.uint64)) for level in (0, 1))
    with pytest.raises(LevelMismatch):
        a + b


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6))
@settings(max_examples=50, deadline=None)
def test_literals_are_exact_rationals(numerator, denominator):
    tower = Tower((2147483579, 1073741789), (4,), 5, 1)
    value = Fraction(numerator, denominator)
    found = tower.literal(value, 0) * denominator % tower.primes[0]
    assert found == numerator % tower.primes[0]


# ---- the recurrence against plain Python integers ----
def plain_recurrence(tower, a, heads, ratio, tokens):
    """S <- diag(exp g) S; d = beta (v - S^T k); S <- S + k d^T; o = S^T q, element by element."""
    p, out = tower.primes[0], {}
    for h in range(heads):
        state = [[int(x) for x in row] for row in a["initial_state"][0, h]]
        for t in range(tokens):
            q, k = ([int(x) for x in a[n][0, t, h // ratio]] for n in ("q", "k"))
            for d, row in enumerate(state):
                w = pow(tower.roots[0], int(a["g"][0, t, h, d]), p)
                state[d] = [x * w % p for x in row]
            for e in range(len(state[0])):
                seen = sum(state[d][e] * k[d] for d in range(len(k)))
                change = int(a["beta"][0, t, h]) * (int(a["v"][0, t, h, e]) - seen) % p
                for d in range(len(k)):
                    state[d][e] = (state[d][e] + k[d] * change) % p
                total = sum(state[d][e] * q[d] for d in range(len(q)))
                out[0, t, h, e] = total * int(a["scale"]) % p
        out["state", h] = state
    return out


def test_recurrence_against_integers():
    tower = Tower.draw(np.random.default_rng(1), 2)
    sizes = {"B": 1, "N": 1, "T": 3, "H": 2, "HV": 4, "K": 3, "V": 2}
    call = Call(
        "kda.chunk_forward", sizes, {"gate": "precomputed"}, frozenset({"initial_state", "final_state", "o"})
    )
    levels, rng = port_levels(call), np.random.default_rng(2)
    shapes = {
        "q": (1, 3, 2, 3),
        "k": (1, 3, 2, 3),
        "v": (1, 3, 4, 2),
        "g": (1, 3, 4, 3),
        "beta": (1, 3, 4),
        "initial_state": (1, 4, 3, 2),
        "scale": (),
    }
    values = {name: tower.elements(rng, shape, levels[name]) for name, shape in shapes.items()}
    pieces = chunk_forward({n: Elements(tower, levels[n], v) for n, v in values.items()}, call)
    wanted = plain_recurrence(tower, values, 4, 2, 3)
    for (row, t), piece in pieces["o"]:
        for h in range(4):
            assert [int(x) for x in piece.values[h]] == [wanted[row, t, h, e] for e in range(2)]
    ((_, state),) = pieces["final_state"]
    assert state.values.tolist() == [wanted["state", h] for h in range(4)]


def decode_call(**integers):
    sizes = {
        "N": 3,
        "T": 2,
        "H": 1,
        "HV": 1,
        "K": 2,
        "V": 2,
        "SLOTS": 7,
        "W": 2 if "num_accepted_tokens" in integers else 1,
    }
    return Call("kda.decode", sizes, {"gate": "precomputed"}, frozenset(), integers)


@pytest.mark.parametrize(
    ("integers", "written"),
    [
        ({}, [0, 1, 2]),
        ({"ssm_state_indices": ((4,), (-1,), (9,))}, [4]),
        ({"ssm_state_indices": ((0, 1), (2, -1), (-1, 5)), "num_accepted_tokens": (1, 1, 1)}, [0, 1, 2]),
        ({"ssm_state_indices": ((0, 1), (2, 3), (-1, 5)), "num_accepted_tokens": (2, 1, 2)}, [0, 1, 2, 3, 5]),
    ],
)
def test_decode_writes_these_slots(integers, written):
    shapes = {
        "q": (3, 2, 1, 2),
        "k": (3, 2, 1, 2),
        "v": (3, 2, 1, 2),
        "g": (3, 2, 1, 2),
        "beta": (3, 2, 1),
        "pool": (7, 1, 2, 2),
        "scale": (),
    }
    a = {name: Degrees.indeterminates(shape) for name, shape in shapes.items()}
    pieces = decode(a, decode_call(**integers))
    assert sorted(where[0] for where, _ in pieces["pool"]) == written
    assert len(pieces["o"]) == 6


def test_degrees_of_a_product_and_an_exponential():
    x, y = Degrees.indeterminates((1,)), Degrees.indeterminates((1,))
    assert (x * y + x).degree.tolist() == [2]
    assert (x * y * 3).exp().degree.tolist() == [3]
    assert (x + y).exp().degree.tolist() == [2] and (x + y).exp().exponents == 1
