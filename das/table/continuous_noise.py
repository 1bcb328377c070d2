"""Noise on the real line, in floating point: for studying conditioned densities, never for a release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.noise.stream import Bundle
from das.table.continuous import normals, uniforms

__all__ = ["RealGaussian", "RealLaplace"]


@dataclass(frozen=True, slots=True)
class RealLaplace:
    """Density ``exp(-|u| / scale) / (2 scale)``.

    Examples
    --------
    >>> round(float(RealLaplace(0.5).log_pmf([2.0])[0]), 6)
    -4.0
    """

    scale: float
    status: ClassVar[str] = "analysis"

    def log_pmf(self, k: ArrayLike) -> NDArray[np.float64]:
        """Return the log density."""
        return np.asarray(-np.abs(np.asarray(k)) / self.scale - np.log(2 * self.scale))

    def draw(self, bundle: Bundle, n: int) -> NDArray[np.float64]:
        """Return n draws from each stream, by inversion."""
        centred = uniforms(bundle, n) - 0.5
        return np.asarray(-self.scale * np.sign(centred) * np.log1p(-2 * np.abs(centred)))


@dataclass(frozen=True, slots=True)
class RealGaussian:
    """Density of the normal distribution with mean zero.

    Examples
    --------
    >>> round(float(RealGaussian(1.0).log_pmf([0.0])[0]), 6)
    -0.918939
    """

    variance: float
    status: ClassVar[str] = "analysis"

    def log_pmf(self, k: ArrayLike) -> NDArray[np.float64]:
        """Return the log density."""
        return np.asarray(-(np.asarray(k) ** 2) / (2 * self.variance) - np.log(2 * np.pi * self.variance) / 2)

    def draw(self, bundle: Bundle, n: int) -> NDArray[np.float64]:
        """Return n draws from each stream."""
        return np.asarray(np.sqrt(self.variance) * normals(bundle, n))
