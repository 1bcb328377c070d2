"""A released statistic with the noise that was added to it, and how the number came about.

Methods that model the noise need the number that the mechanism released. A number that was clamped at zero, rounded,
projected onto constraints or read from a published table has another distribution, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.errors import InputError, Problem, UsageError
from das.inference.additive_noise import AdditiveNoise, noise_of

__all__ = ["MEASUREMENT", "POST_PROCESSED", "NoisyStatistic", "raw"]

MEASUREMENT = "measurement"
POST_PROCESSED = ("clamped", "rounded", "projected", "table")
"""What may have happened to a number; each makes its distribution another one than the mechanism's."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyStatistic:
    """Released numbers: each a true one plus independent noise of a known law.

    Parameters
    ----------
    value : array_like
        One number, or several.
    noise : mechanism or sequence of mechanisms
        One for all numbers, or one for each: mechanisms of ``das.noise``, ``laplace(scale)`` or ``gaussian(sigma2)``.
    provenance : str
        ``measurement`` for what a mechanism released; otherwise what was done to it (`POST_PROCESSED`).

    Examples
    --------
    >>> from das.inference.additive_noise import laplace
    >>> released = NoisyStatistic(value=37.4, noise=laplace(5))
    >>> released.size, np.round(released.log_density([37.4, 32.4]), 4).tolist()
    (1, [-2.3026, -3.3026])
    >>> raw(NoisyStatistic(value=-2.5, noise=laplace(5)).clamped())
    Traceback (most recent call last):
    das.errors.UsageError: statistic: was clamped after the noise, so the mechanism's density is not its density; ...
    """

    value: NDArray[np.float64]
    noise: tuple[AdditiveNoise, ...]
    provenance: str = MEASUREMENT

    def __init__(self, *, value: ArrayLike, noise: Any, provenance: str = MEASUREMENT) -> None:
        try:
            values = np.atleast_1d(np.array(value, dtype=np.float64))
        except (TypeError, ValueError):  # text, or lists within lists
            values = np.empty(0)
        if values.ndim != 1 or not values.size or not np.isfinite(values).all():
            raise InputError(Problem("statistic", "its values are not finite numbers", "give one number, or a list"))
        several = isinstance(noise, Iterable) and not isinstance(noise, (str, AdditiveNoise))
        laws = tuple(noise_of(each) for each in (noise if several else [noise] * values.size))
        if len(laws) != values.size:
            reason = f"{values.size} values have {len(laws)} mechanisms"
            raise UsageError(Problem("statistic", reason, "give one mechanism, or one for each value"))
        if provenance not in (MEASUREMENT, *POST_PROCESSED):
            known = ", ".join((MEASUREMENT, *POST_PROCESSED))
            raise UsageError(Problem("provenance", f"{provenance!r} is not known", f"known are {known}"))
        whole = np.array([law.on_integers for law in laws])
        if provenance == MEASUREMENT and (values[whole] != np.rint(values[whole])).any():
            reason = "has a fraction, which integer noise on a count cannot give, so it is no measurement"
            raise InputError(Problem("statistic", reason, "take the number from the release's measurements"))
        values.flags.writeable = False
        for name, content in (("value", values), ("noise", laws), ("provenance", provenance)):
            object.__setattr__(self, name, content)

    @property
    def size(self) -> int:
        """How many numbers."""
        return len(self.value)

    @property
    def log_peak(self) -> float:
        """The largest log density that any true statistic gives the released value."""
        return sum(law.log_peak for law in self.noise)

    def log_density(self, truth: ArrayLike) -> NDArray[np.float64]:
        """Return log eta(value | s) for candidates s: an array (n,) for one number, (n, size) for several."""
        candidates = np.asarray(truth, dtype=np.float64)
        if candidates.ndim == 1 and self.size == 1:
            return self.noise[0].log_density(self.value[0] - candidates)
        if candidates.ndim != 2 or candidates.shape[1] != self.size:
            reason = f"a simulated statistic of shape {candidates.shape[1:]} was compared with {self.size} numbers"
            raise UsageError(Problem("simulator", reason, "return one row per draw, a column per released number"))
        each = [law.log_density(self.value[k] - candidates[:, k]) for k, law in enumerate(self.noise)]
        return np.asarray(np.sum(each, axis=0))

    def clamped(self) -> NoisyStatistic:
        """Return the values with negative ones set to zero, marked as such."""
        return NoisyStatistic(value=np.maximum(self.value, 0.0), noise=self.noise, provenance="clamped")

    def rounded(self) -> NoisyStatistic:
        """Return the values rounded to integers, marked as such."""
        return NoisyStatistic(value=np.rint(self.value), noise=self.noise, provenance="rounded")


def raw(statistic: object) -> NoisyStatistic:
    """Return the statistic, or refuse it if it is not what the mechanism released."""
    if not isinstance(statistic, NoisyStatistic):
        reason = f"a {type(statistic).__name__} does not say how it was protected"
        raise UsageError(Problem("statistic", reason, "give a NoisyStatistic: the value with its noise"))
    if statistic.provenance != MEASUREMENT:
        done = "comes from a published table" if statistic.provenance == "table" else f"was {statistic.provenance}"
        after = "" if statistic.provenance == "table" else " after the noise"
        reason = f"{done}{after}, so the mechanism's density is not its density"
        raise UsageError(Problem("statistic", reason, "use the release's measurements"))
    return statistic
