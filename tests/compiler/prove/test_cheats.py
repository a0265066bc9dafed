"""Optimisations that do not compute the operator, and mistakes: none is proved. The names are those of real
kernels."""

from __future__ import annotations

import pytest

CHUNK, DECODE = "kda.chunk_forward", "kda.decode"
PAIR, FOLD = {"decay": "pairwise", "chain": "split"}, {"decay": "pairwise", "chain": "folded"}
CENTRED, FACTORED = {"decay": "centred", "chain": "split"}, {"decay": "factored", "chain": "split"}
NORM = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
BOUNDED, SOFTPLUS = {**NORM, "gate": "bounded"}, {**NORM, "gate": "softplus"}

# name, edits of the operator's text, the first wrong stage (None: any), form, options
CHUNK_CHEATS = [
    (
        "constant norm of q",
        [("rsqrt(qq[i] + 1e-6) * scale", "0.0883883 * scale")],
        "norm_q|unit_q",
        PAIR,
        BOUNDED,
    ),
    ("constant norm of k", [("rsqrt(kk[i] + 1e-6)", "0.09")], "norm_k|unit_k", PAIR, BOUNDED),
    ("norm of q for k", [("rsqrt(kk[i] + 1e-6)", "rsqrt(qq[i] + 1e-6)")], "norm_k|unit_k", PAIR, BOUNDED),
    ("epsilon dropped", [("rsqrt(qq[i] + 1e-6)", "rsqrt(qq[i])")], "norm_q|unit_q", PAIR, BOUNDED),
    ("epsilon ten times", [("rsqrt(kk[i] + 1e-6)", "rsqrt(kk[i] + 1e-5)")], "norm_k|unit_k", PAIR, BOUNDED),
    ("scale dropped", [("qx[i, d] * scale", "qx[i, d]")], "unit_q", PAIR, {}),
    ("scale twice", [("qx[i, d] * scale", "qx[i, d] * scale * scale")], "unit_q", PAIR, {}),
    (
        "scale one part in ten million off",
        [("qx[i, d] * scale", "qx[i, d] * scale * 1.0000001")],
        "unit_q",
        PAIR,
        {},
    ),
    (
        "initial state dropped",
        [("where given(initial_state)", "where not given(initial_state)")],
        None,
        PAIR,
        {},
    ),
    (
        "initial state of head 0",
        [("initial_state[n, h, d, e]", "initial_state[n, 0, d, e]")],
        "state_load",
        PAIR,
        {},
    ),
    (
        "initial state transposed",
        [("initial_state[n, h, d, e]", "initial_state[n, h, e, d]")],
        "state_load",
        PAIR,
        {},
    ),
    (
        "final state transposed",
        [("final_state[n, h, d, e]", "final_state[n, h, e, d]")],
        "state_store",
        PAIR,
        {},
    ),
    ("beta dropped from the solve", [("b[i] * l_raw[i, j]", "l_raw[i, j]")], "mask_kk", PAIR, {}),
    ("beta of the wrong row", [("b[i] * l_raw[i, j]", "b[j] * l_raw[i, j]")], "mask_kk", PAIR, {}),
    ("beta dropped from the residual", [("b[j] * (vx", "(vx")], "residual", PAIR, {}),
    (
        "diagonal left out of the output",
        [("if j <= i then m_raw", "if j < i then m_raw")],
        "mask_qk",
        PAIR,
        {},
    ),
    ("mask of the product one short", [("if j < i then kn", "if j + 1 < i then kn")], "gram_kk", PAIR, {}),
    ("no mask", [("if j <= i then m_raw[i, j] else 0.0", "m_raw[i, j]")], "mask_qk", FACTORED, {}),
    (
        "solve skipped",
        [("inv[j, i] * r[i, e]", "(if i == j then 1.0 else 0.0) * r[i, e]")],
        "solve_apply",
        PAIR,
        {},
    ),
    (
        "solve cut after one term",
        [("sum over p < i of l[i, p] * inv[p, j] scan i", "l[i, j]")],
        "inverse",
        PAIR,
        {},
    ),
    ("sign of the solve", [("- sum over p < i", "+ sum over p < i")], "inverse", PAIR, {}),
    (
        "solve one column short",
        [("of l[i, p] * inv[p, j]", "of if p != 3 then l[i, p] * inv[p, j] else 0.0")],
        "inverse",
        PAIR,
        {},
    ),
    (
        "exclusive sum for q",
        [("qn[i, d] * exp2(gc[i, d])", "qn[i, d] * exp2(gc[i, d] - lg[i, d])")],
        "decay_q",
        PAIR,
        {},
    ),
    ("decay missing from the state", [("gamma[d] * state[d, e]", "state[d, e]")], "state_update", PAIR, {}),
    (
        "decay of the last row but one",
        [("gl[d] = gc[C - 1, d]", "gl[d] = gc[C - 2, d]")],
        "decay_total",
        PAIR,
        {},
    ),
    ("keys not restored", [("exp2(gl[d] - gc[i, d])", "exp2(gl[d])")], "restore_k", PAIR, {}),
    (
        "centre one row off on one side",
        [("exp2(gc[C / 2, d] - gc[j, d])", "exp2(gc[C / 2 - 1, d] - gc[j, d])")],
        "undo_k",
        CENTRED,
        {},
    ),
    ("keys decayed twice", [("kn[j, d] / exp2(gc[j, d])", "kn[j, d] * exp2(gc[j, d])")], "undo_k", FACTORED, {}),
    ("no cumulative sum", [("lg[i, d] + gc[i - 1, d] scan i", "lg[i, d]")], "decay_sum", PAIR, {}),
    ("dt_bias dropped", [("rate[] * gx[i, d] + shift[d]", "rate[] * gx[i, d]")], "log_gate", PAIR, BOUNDED),
    (
        "A_log dropped",
        [("rate[] * gx[i, d] + shift[d]", "-(gx[i, d] + bias[d]) * 1.4426950408889634")],
        "log_gate",
        PAIR,
        BOUNDED,
    ),
    ("A_log of head 0", [("-exp(A_log[h]) * 1.4", "-exp(A_log[0]) * 1.4")], "gate_rate|gate_shift", PAIR, BOUNDED),
    ("exp(A_log) as a series", [("-exp(A_log[h]) * 1.4", "-(1.0 + A_log[h]) * 1.4")], None, PAIR, BOUNDED),
    (
        "sigmoid as a line",
        [
            (
                "/ (1.0 + exp2(rate[] * gx[i, d] + shift[d]))",
                "* (0.5 - 0.25 * (rate[] * gx[i, d] + shift[d]))",
            )
        ],
        None,
        PAIR,
        BOUNDED,
    ),
    ("gate grows", [("-rate[] * softplus", "rate[] * softplus")], "log_gate", PAIR, SOFTPLUS),
    ("softplus as exp", [("softplus(gx[i, d] + bias[d])", "exp(gx[i, d] + bias[d])")], None, PAIR, SOFTPLUS),
    (
        "bias twice",
        [("softplus(gx[i, d] + bias[d])", "softplus(gx[i, d] + 2.0 * bias[d])")],
        "log_gate",
        PAIR,
        SOFTPLUS,
    ),
    (
        "padded rows decay",
        [
            (
                "least[i] = if valid(n, c, i) then lower_bound * 1.4426950408889634 else 0.0",
                "least[i] = lower_bound * 1.4426950408889634",
            )
        ],
        "gate_least|log_gate",
        PAIR,
        BOUNDED,
    ),
    ("beta without its sigmoid", [("* sigmoid(bx[i])", "* bx[i]")], None, PAIR, BOUNDED),
    (
        "beta not doubled",
        [("2.0 else 1.0", "1.0 else 1.0")],
        "write_gate",
        PAIR,
        {**BOUNDED, "allow_neg_eigval": True},
    ),
    ("heads interleaved", [("head(h) = if HV == H then h else h / (HV / H)", "head(h) = h % H")], None, PAIR, {}),
    ("first head for all", [("head(h) = if HV == H then h else h / (HV / H)", "head(h) = 0")], None, PAIR, {}),
    ("sequences start one late", [("max(cu_seqlens[n], 0)", "max(cu_seqlens[n] + 1, 0)")], None, PAIR, {}),
    (
        "sequences end one early",
        [("T) - start(n), 0) else T", "T) - start(n) - 1, 0) else T")],
        None,
        PAIR,
        {},
    ),
    ("tail chunk skipped", [("c in (length(n) + C - 1) / C", "c in length(n) / C")], None, PAIR, {}),
    ("a row of the next sequence leaks in", [("i < length(n)", "i <= length(n)")], None, PAIR, {}),
    ("first batch row for all", [("then 0 else n\n    token", "then 0 else 0\n    token")], None, PAIR, {}),
    (
        "output of the next state",
        [("q_decayed[j, d] * state[d, e]", "q_decayed[j, d] * state_next[d, e]")],
        "state_query",
        PAIR,
        {},
    ),
    ("residual for the solved value", [("m[j, i] * u[i, e]", "m[j, i] * r[i, e]")], "within", PAIR, {}),
    (
        "chunk's own tokens left out",
        [("o_state[j, e] + sum over i of m[j, i] * u[i, e]", "o_state[j, e]")],
        "within",
        PAIR,
        {},
    ),
    ("history truncated", [("gamma[d] * state[d, e] + sum over j", "sum over j")], "state_update", PAIR, {}),
    (
        "fold without beta",
        [("inv[j, i] * weighted_k[i, d]", "inv[j, i] * k_decayed[i, d]")],
        "fold_w",
        FOLD,
        {},
    ),
    (
        "sign of the folded query",
        [("q_decayed[j, d] - sum over i of m", "q_decayed[j, d] + sum over i of m")],
        "fold_q",
        FOLD,
        {},
    ),
    ("fold without the inverse", [("m[j, i] * u0[i, e]", "m[j, i] * weighted_v[i, e]")], "intra", FOLD, {}),
    (
        "exponent clamped",
        [
            (
                "qn[i, d] * kn[j, d] * exp2(gc[i, d] - gc[j, d])",
                "qn[i, d] * kn[j, d] * exp2(min(gc[i, d] - gc[j, d], 0.0))",
            )
        ],
        None,
        PAIR,
        {},
    ),
    (
        "small products dropped",
        [("if j < i then b[i] * l_raw[i, j]", "if l_raw[i, j] > 0.001 then b[i] * l_raw[i, j]")],
        None,
        PAIR,
        {},
    ),
    ("exponential as a series", [("gamma[d] = exp2(gl[d])", "gamma[d] = 1.0 + gl[d]")], None, PAIR, {}),
    (
        "one channel of v for all",
        [
            (
                "token(n, c, i), h, e] where valid(n, c, i) else 0.0",
                "token(n, c, i), h, 0] where valid(n, c, i) else 0.0",
            )
        ],
        None,
        PAIR,
        {},
    ),
    ("k for q", [("qx[i, d] = q[", "qx[i, d] = k[")], None, PAIR, {}),
    ("one channel skipped", [("if j < i then kn", "if j < i and d != 5 then kn")], "gram_kk", PAIR, {}),
    ("output scaled", [("] = o_sum[", "] = 0.999 * o_sum[")], "write_o", PAIR, {}),
]
DECODE_CHEATS = [
    ("decay dropped", [("a[d] * state[d, e]", "state[d, e]")], "decay", None, {}),
    (
        "output of the state before the token",
        [("state_next[d, e] * qn[d]", "sd[d, e] * qn[d]")],
        "read_query",
        None,
        {},
    ),
    ("beta dropped", [("b[] * (vx[e] - sk[e])", "vx[e] - sk[e]")], "delta", None, {}),
    ("prediction dropped", [("b[] * (vx[e] - sk[e])", "b[] * vx[e]")], "delta", None, {}),
    (
        "slot 0 written though it is none",
        [("(if slot_zero_is_real then 0 else 1)", "0")],
        None,
        None,
        {"slot_zero_is_real": False},
    ),
    (
        "source one token late",
        [("num_accepted_tokens[n] - 1", "num_accepted_tokens[n]")],
        None,
        None,
        {"slot_zero_is_real": True},
    ),
    (
        "only the last token saved",
        [("(given(ssm_state_indices) and W == T) or t == T - 1", "t == T - 1")],
        None,
        None,
        {},
    ),
    ("skipped rows not zero", [("if slot(source(n)) then oq[e] else 0.0", "oq[e]")], "write_o", None, {}),
    ("row in place of slot", [("pool[source(n), h", "pool[n, h")], None, None, {}),
    (
        "skipped rows write",
        [("where slot(source(n)) and slot(sink(n, t))", "where slot(sink(n, t))")],
        None,
        None,
        {},
    ),
    ("slots beyond the pool", [("and s < SLOTS", "")], None, None, {}),
    ("state transposed", [("pool[source(n), h, d, e]", "pool[source(n), h, e, d]")], "state_load", None, {}),
]
HARMLESS = [
    ("a diagonal that the solve never reads", [("if j < i then b[i]", "if j <= i then b[i]")], FACTORED, {}),
    (
        "beta of padded rows, whose keys are zero",
        [
            (
                "if valid(n, c, i) then (if allow_neg_eigval then 2.0 else 1.0) * sigmoid(bx[i]) else 0.0",
                "(if allow_neg_eigval then 2.0 else 1.0) * sigmoid(bx[i])",
            )
        ],
        PAIR,
        BOUNDED,
    ),
    (
        "offsets not clamped, where they are right",
        [("min(max(cu_seqlens[n], 0), T)", "cu_seqlens[n]")],
        PAIR,
        {},
    ),
    ("a sum from the other side", [("qx[i, d] * scale", "scale * qx[i, d]")], PAIR, {}),
    (
        "softplus written out",
        [("softplus(gx[i, d] + bias[d])", "log(1.0 + exp(gx[i, d] + bias[d]))")],
        PAIR,
        SOFTPLUS,
    ),
    (
        "exp with ln 2",
        [("exp2(gc[i, d] - gc[j, d])", "exp((gc[i, d] - gc[j, d]) * 0.6931471805599453)")],
        PAIR,
        {},
    ),
]


def test_every_edit_fits_its_operator(edit_operator):
    groups = ((CHUNK, CHUNK_CHEATS), (DECODE, DECODE_CHEATS))
    edits = [(operator, cheat[0], cheat[1]) for operator, cheats in groups for cheat in cheats]
    assert len(edits) >= 73
    assert not [name for operator, name, changes in edits if edit_operator(operator, changes) is None]


@pytest.mark.parametrize(
    ("name", "edits", "stage", "form", "options"), CHUNK_CHEATS, ids=[c[0] for c in CHUNK_CHEATS]
)
def test_chunk_cheat(prove_edited, name, edits, stage, form, options):
    check(prove_edited(CHUNK, edits, form, options), stage)


@pytest.mark.parametrize(
    ("name", "edits", "stage", "form", "options"), DECODE_CHEATS, ids=[c[0] for c in DECODE_CHEATS]
)
def test_decode_cheat(prove_edited, name, edits, stage, form, options):
    check(prove_edited(DECODE, edits, form, options), stage)


def check(proof, stage):
    assert proof.verdict in ("rejected", "unknown")
    if stage is not None:
        assert proof.verdict == "rejected", proof.found
        # a plan may split a stage: inverse_sum
        assert proof.difference.stage.startswith(tuple(stage.split("|"))), proof.found
        assert proof.difference.operator_span is not None
    if proof.verdict == "unknown":
        assert proof.obstacle and proof.remedy and proof.obstacle_span is not None


@pytest.mark.parametrize(("name", "edits", "form", "options"), HARMLESS, ids=[c[0] for c in HARMLESS])
def test_harmless(prove_edited, name, edits, form, options):
    proof = prove_edited(CHUNK, edits, form, options)
    assert proof.proved and proof.bound <= 1e-18, proof.found
