"""Oracles that share no code with das.noise: decimal arithmetic, one exponential a time."""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, isqrt

import numpy as np
import pytest
from scipy import stats

from das.noise import DiscreteGaussian, DiscreteLaplace

DIGITS = 320


class Oracle:
    """Probabilities of a noise distribution, to at least a hundred digits."""

    def __init__(self, noise):
        with localcontext() as context:
            context.prec = DIGITS
            if isinstance(noise, DiscreteGaussian):
                parameter, power = Fraction(2 * noise.sigma2), 2
                reach = 25 * (isqrt(ceil(noise.sigma2)) + 1)
            else:
                parameter, power = Fraction(noise.scale), 1
                reach = 320 * ceil(noise.scale)
            top, bottom = Decimal(parameter.numerator), Decimal(parameter.denominator)
            self.weights = [(-(Decimal(k) ** power) * bottom / top).exp() for k in range(reach + 1)]
            total = 2 * sum(self.weights) - 1
            self.probabilities = [weight / total for weight in self.weights]
            tails, running = [], Decimal(0)
            for probability in reversed(self.probabilities):
                running += probability
                tails.append(running)
            self.tails = tails[::-1]

    def pmf(self, k):
        return self.probabilities[abs(k)]

    def cdf(self, k):
        with localcontext() as context:
            context.prec = DIGITS
            return self.tails[-k] if k < 0 else 1 - self.tails[k + 1]

    def variance(self):
        with localcontext() as context:
            context.prec = DIGITS
            return 2 * sum(k * k * p for k, p in enumerate(self.probabilities))

    def scaled_floor(self, k, bits):
        """Return floor(2**bits * P(X <= k))."""
        with localcontext() as context:
            context.prec = DIGITS
            return floor(self.cdf(k) * 2**bits)


def p_value_of_counts(values, noise, expected_at_least=25):
    """Return the chi-square p-value of integer draws against noise.pmf, with the tails pooled."""
    size = len(values)
    reach = 0
    while size * noise.pmf(reach + 1) > expected_at_least:
        reach += 1
    expected = [size * noise.pmf(k) for k in range(-reach, reach + 1)]
    tail = size * noise.cdf(-reach - 1)
    clipped = np.clip(values, -reach - 1, reach + 1) + reach + 1
    observed = np.bincount(clipped, minlength=2 * reach + 3)
    if tail < 5:  # too few for a bin of their own
        observed[1] += observed[0]
        observed[-2] += observed[-1]
        observed = observed[1:-1]
        expected[0] += tail
        expected[-1] += tail
    else:
        expected = [tail, *expected, tail]
    statistic = float(((observed - np.array(expected)) ** 2 / np.array(expected)).sum())
    return float(stats.chi2.sf(statistic, len(expected) - 1)) if len(expected) > 1 else float(statistic < 1e-9)


@pytest.fixture(scope="session")
def oracle():
    return lru_cache(maxsize=None)(Oracle)


@pytest.fixture(scope="session")
def p_value():
    return p_value_of_counts


GAUSSIANS = [DiscreteGaussian(s) for s in ("1/1000", "1/10", "1", "3/2", "484/25", "400")]
LAPLACES = [DiscreteLaplace(s) for s in ("1/100", "1/3", "1", "5/2", "44/10", "9")]


@pytest.fixture(params=GAUSSIANS + LAPLACES, ids=lambda noise: noise.name, scope="session")
def noise(request):
    return request.param
