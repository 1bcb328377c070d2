"""What an attacker learns, against closed forms and against pairs of laws that are written out."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from das.accounting.conversion import epsilon_upper, gdp_epsilon_upper
from das.accounting.events import GaussianEvent, LaplaceEvent
from das.accounting.pld import loss_distribution
from das.accounting.tradeoff import Losses, learnt_of, losses_of_curve, losses_of_distribution


@pytest.mark.parametrize("mu", [0.2, 1.0, 2.0])
def test_the_gaussian_trade_off(mu: float) -> None:
    """A wide discrete Gaussian is close to a continuous one, whose curve is Phi(Phi^-1(1 - a) - mu)."""
    event = GaussianEvent(level="us", query="total", sigma2=Fraction(1600))
    found = learnt_of([losses_of_distribution(loss_distribution([(event, (round(40 * mu),))]))])
    assert found.right == pytest.approx(ndtr(mu / 2), abs=0.01)
    for false, missed in found.curve[1:-1]:
        assert missed == pytest.approx(ndtr(ndtri(1 - false) - mu), abs=0.005)
    assert all(belief.prior < belief.mean <= belief.rare for belief in found.beliefs)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_randomised_response_in_closed_form(epsilon: float) -> None:
    p = 1 / (1 + math.exp(-epsilon))
    event = LaplaceEvent(level="us", query="total", scale=1 / Fraction(epsilon))
    for losses in (losses_of_distribution(loss_distribution([(event, (1,))])), losses_of_curve(lambda delta: epsilon)):
        found = learnt_of([losses])
        assert found.right == pytest.approx(p, abs=2e-4)
        for belief in found.beliefs:
            odds = belief.prior / (1 - belief.prior)
            up, down = odds * math.exp(epsilon), odds * math.exp(-epsilon)
            mean = p * up / (1 + up) + (1 - p) * down / (1 + down)
            assert belief.mean == pytest.approx(mean, abs=2e-4)
            assert belief.rare == pytest.approx(up / (1 + up), abs=2e-4)


@pytest.mark.parametrize("seed", range(5))
def test_no_pair_of_laws_learns_more_than_its_own_bound_and_its_garbled_one_less(seed: int) -> None:
    """For random pairs: enumeration of all tests, exact mean beliefs; and a coarser release never shows more."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    order = np.argsort(np.log(p / q))
    found = learnt_of([Losses(np.log(p / q)[order], p[order], 0.0)])
    for chosen in range(2**6):
        alarm = np.array([chosen >> k & 1 for k in range(6)], dtype=bool)
        false, missed = q[alarm].sum(), 1 - p[alarm].sum()
        # the curve falls and is read at some points only: at the next one it is below what it is here
        least = next(least for more, least in found.curve if more >= false - 1e-12)
        assert missed >= least - 1e-12
    garble = rng.dirichlet(np.ones(3), size=6)
    for prior, belief in zip((0.01, 0.1, 0.5), found.beliefs, strict=True):
        for one, two in ((p, q), (p @ garble, q @ garble)):
            after = prior * one / (prior * one + (1 - prior) * two)
            assert float(one @ after) <= belief.mean + 1e-9
            assert one[after > belief.rare + 1e-9].sum() <= 0.01 + 1e-9


@pytest.mark.parametrize("rho", [Fraction(1, 100), Fraction(1), Fraction(4)])
def test_a_curve_of_epsilons_is_never_below_the_law_it_comes_from(rho: Fraction) -> None:
    mu = math.sqrt(2 * rho)
    exact = learnt_of([losses_of_curve(lambda delta: gdp_epsilon_upper(mu, Fraction(delta)))])
    loose = learnt_of([losses_of_curve(lambda delta: epsilon_upper(rho, Fraction(delta)))])
    assert ndtr(mu / 2) - 1e-4 <= exact.right <= loose.right
    for sharp, wide in zip(exact.beliefs, loose.beliefs, strict=True):
        assert sharp.mean <= wide.mean
        assert sharp.rare <= wide.rare
