"""The density of additive noise as data users need it: a log density, its peak, its variance and simulated draws.

All mechanisms of ``das.noise``, and the two continuous laws of textbooks, have densities of one shape,
exp(log_peak - quadratic u^2 - linear |u|), on the integers or on the real line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from das.errors import Problem, UsageError
from das.noise.two_sided import TwoSidedNoise
from das.table.continuous_noise import RealGaussian, RealLaplace

__all__ = ["AdditiveNoise", "gaussian", "laplace", "noise_of"]

TABLE_DEPTH = 60.0
"""Tables of discrete noise leave out values whose probability is below e^-60 of the largest."""


@dataclass(frozen=True, slots=True)
class AdditiveNoise:
    """Noise with density ``exp(log_peak - quadratic u^2 - linear |u|)``.

    Examples
    --------
    >>> noise = laplace(5)
    >>> noise.variance, [round(float(x), 4) for x in np.exp(noise.log_density([0.0, 5.0]))]
    (50.0, [0.1, 0.0368])
    >>> noise.reach(3.0)
    15.0
    """

    name: str
    quadratic: float
    linear: float
    log_peak: float
    variance: float
    on_integers: bool

    def log_density(self, noise: ArrayLike) -> NDArray[np.float64]:
        """Return the log density (log probability on the integers, where other values have none)."""
        size = np.abs(np.asarray(noise, dtype=np.float64))
        log_density = self.log_peak - self.quadratic * size * size - self.linear * size
        if self.on_integers:
            return np.where(size == np.rint(size), log_density, -np.inf)
        return np.asarray(log_density)

    def cdf(self, noise: ArrayLike) -> NDArray[np.float64]:
        """Return P(U <= u).

        Examples
        --------
        >>> laplace(2).cdf([0.0, -2.0]).round(4).tolist(), gaussian(4).cdf([2.0]).round(4).tolist()
        ([0.5, 0.1839], [0.8413])
        """
        u = np.asarray(noise, dtype=np.float64)
        if self.on_integers:
            most = math.ceil(self.reach(TABLE_DEPTH))
            levels = np.append(0.0, np.cumsum(np.exp(self.log_density(np.arange(-most, most + 1)))))
            return np.asarray(levels[np.clip(np.floor(u) + most + 1, 0, len(levels) - 1).astype(np.int64)])
        if self.quadratic:
            return np.asarray(ndtr(u / math.sqrt(self.variance)))
        tail = np.exp(-self.linear * np.abs(u)) / 2
        return np.where(u < 0, tail, 1 - tail)

    def reach(self, depth: float) -> float:
        """Return the distance from zero at which the density has fallen to ``exp(-depth)`` of its peak."""
        if self.quadratic == 0.0:
            return depth / self.linear
        return (math.sqrt(self.linear**2 + 4 * self.quadratic * depth) - self.linear) / (2 * self.quadratic)

    def draw(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Return simulated noise in floating point: for studies of methods, never to protect data."""
        if not self.on_integers:
            if self.quadratic:
                return np.asarray(rng.normal(scale=math.sqrt(self.variance), size=shape))
            return np.asarray(rng.laplace(scale=1 / self.linear, size=shape))
        if not self.quadratic:
            stop = -math.expm1(-self.linear)
            return np.asarray(rng.geometric(stop, shape) - rng.geometric(stop, shape), dtype=np.float64)
        most = math.ceil(self.reach(TABLE_DEPTH))
        values = np.arange(-most, most + 1)
        levels = np.cumsum(np.exp(self.log_density(values)))
        return values[np.searchsorted(levels, rng.uniform(high=levels[-1], size=shape))].astype(np.float64)


def laplace(scale: float) -> AdditiveNoise:
    """Return continuous Laplace noise with density ``exp(-|u| / scale) / (2 scale)``."""
    return noise_of(RealLaplace(_positive(scale, "scale")))


def gaussian(sigma2: float) -> AdditiveNoise:
    """Return continuous Gaussian noise with variance ``sigma2``.

    Examples
    --------
    >>> gaussian(-1.0)
    Traceback (most recent call last):
    das.errors.UsageError: sigma2: -1.0 is not a positive number; noise needs a parameter above zero
    """
    return noise_of(RealGaussian(_positive(sigma2, "sigma2")))


def noise_of(mechanism: object) -> AdditiveNoise:
    """Return the density of a mechanism of this project.

    Examples
    --------
    >>> from das.noise.discrete_gaussian import DiscreteGaussian
    >>> noise = noise_of(DiscreteGaussian(4))
    >>> noise.name, noise.on_integers, noise.quadratic
    ('discrete-gaussian(sigma2=4)', True, 0.125)
    >>> noise_of("congenial")
    Traceback (most recent call last):
    das.errors.UsageError: mechanism: a str has no density of additive noise; give a mechanism of das.noise, ...
    """
    if isinstance(mechanism, AdditiveNoise):
        return mechanism
    if isinstance(mechanism, TwoSidedNoise):
        weights = mechanism.weights
        return AdditiveNoise(
            name=mechanism.name,
            quadratic=float(weights.quadratic),
            linear=float(weights.linear),
            log_peak=math.log(mechanism.pmf(0)),
            variance=mechanism.variance(),
            on_integers=True,
        )
    if isinstance(mechanism, RealLaplace):
        b = float(mechanism.scale)
        return AdditiveNoise(f"laplace(scale={b:g})", 0.0, 1 / b, -math.log(2 * b), 2 * b * b, on_integers=False)
    if isinstance(mechanism, RealGaussian):
        v = float(mechanism.variance)
        peak = -math.log(2 * math.pi * v) / 2
        return AdditiveNoise(f"gaussian(sigma2={v:g})", 1 / (2 * v), 0.0, peak, v, on_integers=False)
    raise UsageError(
        Problem(
            "mechanism",
            f"a {type(mechanism).__name__} has no density of additive noise",
            "give a mechanism of das.noise, or laplace(scale) or gaussian(sigma2)",
        )
    )


def _positive(value: float, where: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise UsageError(Problem(where, f"{value!r} is not a positive number", "noise needs a parameter above zero"))
    return float(value)
