"""Gate, norm and beta: right in the tails, and refusals that name the parameter."""

import math

import numpy as np
import pytest

from kdsl.validate import activation
from kdsl.validate.errors import ArrayError, MissingArrayError, OptionError


@pytest.mark.parametrize(
    ("x", "softplus", "sigmoid"),
    [
        (0.0, math.log(2), 0.5),
        (800.0, 800.0, 1.0),
        (-700.0, math.exp(-700), math.exp(-700)),
        (-40.0, math.exp(-40), math.exp(-40)),
        (30.0, 30 + math.exp(-30), 1 / (1 + math.exp(-30))),
        (-math.inf, 0.0, 0.0),
        (math.inf, math.inf, 1.0),
    ],
)
def test_softplus_and_sigmoid_keep_their_tails(x, softplus, sigmoid):
    assert activation.softplus(np.array(x)) == pytest.approx(softplus, rel=1e-15)
    assert activation.sigmoid(np.array(x)) == pytest.approx(sigmoid, rel=1e-15)


def test_nan_goes_through_and_dtypes_stay():
    for function in (activation.softplus, activation.sigmoid):
        assert np.isnan(function(np.array(np.nan)))
        assert function(np.ones(3, np.float32)).dtype == np.float32


def test_the_epsilon_is_inside_the_root():
    half = activation.l2_normalise(np.array([[1e-3, 0.0]]))
    assert half[0, 0] == pytest.approx(1 / math.sqrt(2), rel=1e-12)
    assert (activation.l2_normalise(np.zeros((2, 4))) == 0).all()


def test_dt_bias_may_be_flat_and_may_be_absent():
    g, rate = np.linspace(-3, 3, 12).reshape(2, 2, 3), np.array([0.1, 0.4])
    bias = np.arange(6.0)
    flat = activation.log_decay(g, "softplus", rate, bias)
    assert np.array_equal(flat, activation.log_decay(g, "softplus", rate, bias.reshape(2, 3)))
    assert np.array_equal(
        activation.log_decay(g, "bounded", rate, None, -5.0),
        activation.log_decay(g, "bounded", rate, np.zeros(6), -5.0),
    )


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        ({"gate": "linear"}, OptionError, "gate"),
        ({"gate": "bounded", "A_log": np.zeros(2)}, OptionError, "lower_bound"),
        ({"gate": "softplus"}, MissingArrayError, "A_log"),
        ({"gate": "softplus", "A_log": np.zeros(2), "lower_bound": -5.0}, OptionError, "lower_bound"),
        ({"gate": "precomputed", "A_log": np.zeros(2)}, OptionError, "A_log"),
        ({"gate": "softplus", "A_log": np.zeros(3)}, ArrayError, "A_log"),
        ({"gate": "softplus", "A_log": np.zeros(2), "dt_bias": np.zeros(5)}, ArrayError, "dt_bias"),
    ],
)
def test_gate_parameters_are_refused_by_name(arguments, error, name):
    with pytest.raises(error, match=name):
        activation.log_decay(np.zeros((1, 2, 3)), **arguments)


def test_negative_eigenvalues_need_the_sigmoid():
    beta = np.array([0.0, 2.0])
    assert activation.write_strength(beta, True, True)[0] == 1.0
    assert activation.write_strength(beta, False, False) is beta
    with pytest.raises(OptionError, match="allow_neg_eigval"):
        activation.write_strength(beta, False, True)
