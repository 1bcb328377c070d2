"""Conversions against the vectors, against high precision, and against another accountant."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.accounting.conversion import (
    delta_upper,
    epsilon_upper,
    gdp_delta_upper,
    gdp_epsilon_upper,
    mu_of_pure_upper,
    rho_of_pure_upper,
)
from das.errors import ConfigError

mpmath = pytest.importorskip("mpmath")


def exact(value: float) -> Fraction:
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


EVALUATIONS = {
    "zcdp_to_eps": lambda i: epsilon_upper(exact(i["rho"]), exact(i["delta"])),
    "gdp_delta": lambda i: gdp_delta_upper(i["mu"], i["eps"]),
    "gdp_eps": lambda i: gdp_epsilon_upper(i["mu"], exact(i["delta"])),
    "pure_to_gdp": lambda i: mu_of_pure_upper(i["eps"]),
    "pure_to_zcdp_tight": lambda i: rho_of_pure_upper(i["eps"]),
}


def test_every_conversion_vector(vectors) -> None:
    conversions = vectors(*EVALUATIONS)
    assert len(conversions) == 25
    for vector in conversions:
        got = EVALUATIONS[vector["name"]](vector["input"])
        assert got == pytest.approx(vector["expected"], abs=vector["tol"]), vector


@pytest.mark.parametrize(
    ("rho", "delta", "expected"),
    [
        ("0.07", 10, 2.387275), ("2.63", 10, 17.430584), ("1", 10, 10.034344), ("4.96", 10, 25.412461),
        ("7.70", 10, 33.287411), ("15.29", 10, 51.562576), ("0.1", 6, 2.141939), ("0.01", 9, 0.810174),
    ],
)  # fmt: skip
def test_known_epsilons(rho: str, delta: int, expected: float) -> None:
    assert epsilon_upper(Fraction(rho), Fraction(1, 10**delta)) == pytest.approx(expected, abs=1e-6)


def test_known_gaussian_values() -> None:
    assert gdp_delta_upper(0.5, 1) == pytest.approx(0.00682959498, abs=1e-11)
    assert rho_of_pure_upper(2) == pytest.approx(1.5231883, abs=1e-7)


def cks_epsilon_precisely(rho: Fraction, delta: Fraction) -> object:
    """The Canonne-Kamath-Steinke optimum by its definition (least epsilon with delta(epsilon) <= delta), 30 digits."""
    with mpmath.workdps(30):
        r, d = mpmath.mpf(rho.numerator) / rho.denominator, mpmath.mpf(delta.numerator) / delta.denominator

        def delta_at(epsilon: object) -> object:
            # stationary order by bisection of its own derivative, in the variable log(alpha - 1)
            low, high = mpmath.mpf(-80), mpmath.mpf(160)
            for _ in range(100):
                middle = (low + high) / 2
                t = mpmath.exp(middle)
                if (2 * t + 1) * r - epsilon + mpmath.log(t) - mpmath.log1p(t) > 0:
                    high = middle
                else:
                    low = middle
            t, a = mpmath.exp(low), 1 + mpmath.exp(low)
            return mpmath.exp(t * (a * r - epsilon) + a * (mpmath.log(t) - mpmath.log(a)) - mpmath.log(t))

        low, high = mpmath.mpf(0), r + 2 * mpmath.sqrt(r * mpmath.log(1 / d))
        if delta_at(low) <= d:
            return low
        for _ in range(50):
            middle = (low + high) / 2
            if delta_at(middle) > d:
                low = middle
            else:
                high = middle
        return high


@pytest.mark.parametrize("rho", ["1/1000000", "1/100", "1/3", "293764/114921", "40", "10000"])
@pytest.mark.parametrize("delta", ["1/10", "1/1000000", "1/10000000000", f"1/{10**60}"])
def test_epsilon_is_never_below_the_optimum_and_hardly_above(rho: str, delta: str) -> None:
    truth = cks_epsilon_precisely(Fraction(rho), Fraction(delta))
    got = epsilon_upper(Fraction(rho), Fraction(delta))
    assert got >= truth
    assert got <= float(truth) * (1 + 1e-10) + 1e-10


def gdp_delta_precisely(mu: float, epsilon: float) -> object:
    with mpmath.workdps(400):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.5, 1.0, 2.2610729, 6.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1, 1.0, 5.0, 17.14, 60.0])
def test_gaussian_delta_is_never_below_the_truth(mu: float, epsilon: float) -> None:
    truth, got = gdp_delta_precisely(mu, epsilon), gdp_delta_upper(mu, epsilon)
    assert got >= truth
    if truth > mpmath.mpf("1e-290"):
        assert got <= float(truth) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-6, 1e-3, 0.05, 0.7, 1.0, 5.0, 30.0, 200.0])
def test_pure_conversions_are_never_below_the_truth(epsilon: float) -> None:
    with mpmath.workdps(200):
        e = mpmath.mpf(epsilon)
        mu = mpmath.mpf(mu_of_pure_upper(epsilon))
        assert mpmath.ncdf(-mu / 2) <= 1 / (1 + mpmath.exp(e))
        assert mpmath.ncdf(-mu * (1 - mpmath.mpf("1e-10")) / 2) > 1 / (1 + mpmath.exp(e))
        assert rho_of_pure_upper(epsilon) >= e * mpmath.tanh(e / 2)
    assert rho_of_pure_upper(epsilon) <= epsilon**2 / 2 * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 10.0])
def test_rho_of_pure_covers_every_order_of_randomised_response(epsilon: float) -> None:
    p = 1 / (1 + math.exp(-epsilon))
    rho = rho_of_pure_upper(epsilon)
    ratios = []
    for order in [1.000001, 1.01, 1.5, 2.0, 5.0, 50.0]:
        with mpmath.workdps(40):
            a, q = mpmath.mpf(order), 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
            divergence = mpmath.log(q**a * (1 - q) ** (1 - a) + (1 - q) ** a * q ** (1 - a)) / (a - 1)
            ratios.append(divergence / a)
    assert max(ratios) <= rho
    assert float(ratios[0]) == pytest.approx((2 * p - 1) * epsilon, rel=1e-5)


rationals = st.fractions(min_value=Fraction(1, 10**6), max_value=100, max_denominator=10**6)
deltas = st.integers(min_value=1, max_value=40).map(lambda k: Fraction(1, 3**k))


@settings(max_examples=50)
@given(rho=rationals, delta=deltas)
def test_both_directions_agree(rho: Fraction, delta: Fraction) -> None:
    epsilon = epsilon_upper(rho, delta)
    assert delta_upper(rho, epsilon * (1 + 1e-9) + 1e-12) <= delta
    # Bun and Steinke (2016, Proposition 1.3) is looser
    assert epsilon <= (float(rho) + 2 * math.sqrt(rho * -math.log(delta))) * (1 + 1e-12)


@settings(max_examples=50)
@given(rho=rationals, delta=deltas)
def test_a_gaussian_is_never_worse_than_its_zcdp_bound(rho: Fraction, delta: Fraction) -> None:
    assert gdp_epsilon_upper(math.sqrt(2 * rho), delta) <= epsilon_upper(rho, delta) * (1 + 1e-9) + 1e-9


@settings(max_examples=50)
@given(rho=rationals, more=rationals, delta=deltas)
def test_epsilon_grows_with_rho(rho: Fraction, more: Fraction, delta: Fraction) -> None:
    assert epsilon_upper(rho, delta) <= epsilon_upper(rho + more, delta) * (1 + 1e-12)


def test_agrees_with_dp_accounting() -> None:
    rdp = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    for rho in (0.1, 1.0, 2.5562255810513306):
        orders = [1 + math.exp(k / 200) for k in range(-800, 1000)]
        theirs, _ = rdp.compute_epsilon(orders, [rho * a for a in orders], 1e-10)
        assert epsilon_upper(Fraction(rho), Fraction(1, 10**10)) == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize(
    "delta", [Fraction(0), Fraction(1), Fraction(-1, 2), Fraction(3, 2), 1e-10, "1/10", True, None]
)
def test_delta_outside_the_open_interval_is_a_named_error(delta: object) -> None:
    for convert in (epsilon_upper, gdp_epsilon_upper):
        with pytest.raises(ConfigError, match="delta"):
            convert(Fraction(1), delta)  # type: ignore[arg-type]


@pytest.mark.parametrize("cost", [Fraction(-1), float("nan"), -0.1, "1"])
def test_costs_that_are_not_costs_are_named_errors(cost: object) -> None:
    with pytest.raises(ConfigError, match="rho"):
        epsilon_upper(cost, Fraction(1, 100))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="epsilon"):
        mu_of_pure_upper(cost)  # type: ignore[arg-type]


def test_nothing_costs_nothing_and_everything_is_infinite() -> None:
    delta = Fraction(1, 10**10)
    assert epsilon_upper(Fraction(0), delta) == gdp_epsilon_upper(0.0, delta) == 0.0
    assert delta_upper(Fraction(0), 1) == gdp_delta_upper(0.0, 1) == 0.0
    assert epsilon_upper(Fraction(10) ** 400, delta) == math.inf
    assert gdp_delta_upper(math.inf, 1) == 1.0
