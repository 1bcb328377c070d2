"""Draws from a posterior: summaries, convergence of chains, and the way to ArviZ."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.errors import Problem, UsageError
from das.table.effective_sample_size import effective_samples

__all__ = ["Posterior", "split_r_hat"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Posterior:
    """Draws of named parameters, an array (chains, draws) each.

    Parameters
    ----------
    draws : dict of str to array
        Chains in rows. Independent draws are one chain.
    independent : bool
        Whether draws of a chain are independent of each other.
    acceptance : float
        Share of proposals that were accepted.
    complete : bool
        Whether as many draws are there as were asked for; those that are there are valid either way.

    Examples
    --------
    >>> posterior = Posterior(draws={"theta": np.array([[1.0, 2.0, 3.0]])}, independent=True, acceptance=0.5)
    >>> posterior.summary()["theta"]["mean"], posterior.to_dict()
    (2.0, {'posterior': {'theta': array([[1., 2., 3.]])}})
    """

    draws: dict[str, NDArray[np.float64]]
    independent: bool
    acceptance: float
    complete: bool = True

    def flat(self, name: str) -> NDArray[np.float64]:
        """All draws of a parameter, chains one after the other."""
        return self.draws[name].reshape(-1)

    def interval(self, name: str, confidence: float = 0.95) -> tuple[float, float]:
        """Equal-tailed interval that holds this share of the posterior.

        Its ends are order statistics (Weibull 1939), between which independent draws leave just this share on average,
        however few they are; NumPy's default leaves less: 94.8 % of 95 with a thousand draws.
        """
        tail = (1 - confidence) / 2
        low, high = np.quantile(self.flat(name), [tail, 1 - tail], method="weibull")
        return float(low), float(high)

    def summary(self, confidence: float = 0.95) -> dict[str, dict[str, float]]:
        """Mean, standard deviation, interval, effective draws and the error of the mean by simulation, of each."""
        found = {}
        for name, chains in self.draws.items():
            low, high = self.interval(name, confidence)
            effective = float(chains.size) if self.independent else float(sum(map(effective_samples, chains)))
            std_dev = float(chains.std())
            found[name] = {
                "mean": float(chains.mean()),
                "std_dev": std_dev,
                "lower": low,
                "upper": high,
                "effective_draws": effective,
                "simulation_error": std_dev / effective**0.5 if effective else float("nan"),
                "r_hat": 1.0 if self.independent else split_r_hat(chains),
            }
        return found

    def to_dict(self) -> dict[str, dict[str, NDArray[np.float64]]]:
        """Return what ``arviz.from_dict`` takes: ``arviz.from_dict(**posterior.to_dict())``."""
        return {"posterior": dict(self.draws)}

    def to_inference_data(self) -> Any:
        """Return an ArviZ ``InferenceData``; ArviZ is not among this project's dependencies."""
        try:
            from_dict = import_module("arviz").from_dict
        except ImportError:
            remedy = "install it (pip install arviz), or use to_dict(), which arviz.from_dict takes"
            raise UsageError(Problem("arviz", "is not installed", remedy)) from None
        return from_dict(**self.to_dict())


def split_r_hat(chains: NDArray[np.float64]) -> float:
    """Return the potential scale reduction of half chains (Gelman et al. 2013, section 11.4); near 1 when they agree.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> round(split_r_hat(rng.normal(size=(4, 1000))), 2)
    1.0
    >>> split_r_hat(np.array([[0.0, 1.0, 0.0, 1.0], [10.0, 11.0, 10.0, 11.0]])) > 2
    True
    """
    half = chains.shape[1] // 2
    halves = np.concatenate([chains[:, :half], chains[:, half : 2 * half]])
    within = halves.var(axis=1, ddof=1).mean()
    between = half * halves.mean(axis=1).var(ddof=1)
    return float(np.sqrt(((half - 1) * within + between) / (half * within))) if within else float("inf")
