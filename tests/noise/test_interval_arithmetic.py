"""The interval arithmetic against decimal arithmetic."""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.noise import DiscreteGaussian, DiscreteLaplace
from das.noise.interval_arithmetic import Weights, enclose_exp_minus, enclose_tails

rationals = st.fractions(min_value=0, max_value=200, max_denominator=10**6)


@given(x=rationals, bits=st.integers(8, 300))
def test_the_exponential_is_enclosed_within_two_units(x, bits):
    lower, upper = enclose_exp_minus(x, bits)
    with localcontext() as context:
        context.prec = 200
        exact = (-Decimal(x.numerator) / Decimal(x.denominator)).exp() * Decimal(2) ** bits
        assert lower <= exact <= upper
    assert 0 <= upper - lower <= 2


@pytest.mark.parametrize(("x", "lower", "upper"), [(Fraction(0), 2**40 - 1, 2**40), (Fraction(10**6), 0, 1)])
def test_the_ends_of_the_exponential(x, lower, upper):
    assert lower <= enclose_exp_minus(x, 40)[0] <= enclose_exp_minus(x, 40)[1] <= upper


@pytest.mark.parametrize("bits", [64, 192, 300])
def test_tails_are_enclosed_tightly(noise, oracle, bits):
    exact = oracle(noise)
    tails = enclose_tails(noise.weights, bits)
    with localcontext() as context:
        context.prec = 320
        for k, (lower, upper) in enumerate(tails, start=1):
            assert lower <= exact.tails[k] * Decimal(2) ** bits <= upper
            assert upper - lower <= 4
        assert exact.tails[len(tails) + 1] * Decimal(2) ** bits <= tails[-1][1]  # the last bound covers all that follow


def test_no_tail_is_cut_off():
    weights = Weights(Fraction(0), Fraction(1, 3))
    last_lower, last_upper = enclose_tails(weights, 64)[-1]
    assert last_lower <= 1 <= last_upper


@pytest.mark.parametrize("noise", [DiscreteGaussian(400), DiscreteGaussian("1/7"), DiscreteLaplace(9)])
def test_reach_is_where_weights_fade(noise):
    reach = noise.weights.reach(64)
    assert noise.weights.exponent(reach) >= 64
    assert noise.weights.exponent(reach // 2) <= 64
