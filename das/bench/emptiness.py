"""What could be done about empty places that are published with people: three ways to estimate totals, on real blocks.

The totals of a block group's blocks are measured with noise, and the block group's own total is kept. Compared are the
nearest nonnegative totals, which is what estimation does; posterior means under a spike at zero and a mixture of
exponential sizes, both learnt from all noisy totals, adjusted to the sum; and zero wherever the spike is the likelier,
the rest shared out. All three see public numbers alone. It is a study of one level and one query, small enough to try
ideas on; what it found is in ``das/evaluation/README.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats import norm

from das.bench.real_geography import groups_of
from das.estimation.prior.mixture import posterior_weights
from das.estimation.prior.totals import share_out

__all__ = ["emptiness_rows", "spike_and_slab"]

Floats = NDArray[np.float64]

MEANS = (3.0, 10.0, 30.0, 90.0, 270.0, 800.0)
"""Mean sizes of the exponential components."""
NOISE = (4.35, 10.0)
"""Standard deviations: the block's detailed query under production's shares, and twice as much."""
SIZES = {"0": (0, 1), "1-9": (1, 10), "10-49": (10, 50), "50-99": (50, 100), "100+": (100, 10**9)}
GROUP_WIDTH = 12
EXACT = 1e-3


def spike_and_slab(noisy: Floats, deviation: float) -> tuple[Floats, Floats, Floats]:
    """Posterior probability of zero, posterior mean and variance of nonnegative counts observed with normal noise.

    Examples
    --------
    >>> rng = np.random.default_rng(3)
    >>> counts = np.where(rng.random(4_000) < 0.5, 0.0, 200.0)
    >>> zero, mean, _ = spike_and_slab(counts + rng.normal(0, 5, 4_000), 5.0)
    >>> bool(zero[counts == 0].mean() > 0.8), bool(zero[counts > 0].max() < 1e-6), round(mean[counts > 0].mean())
    (True, True, 200)
    """
    slabs = [
        deviation**2 / (2 * mean**2) - noisy / mean - np.log(mean) + log_ndtr(noisy / deviation - deviation / mean)
        for mean in MEANS
    ]
    weights = posterior_weights(np.stack([norm.logpdf(noisy, 0.0, deviation), *slabs]))
    centre = np.stack([noisy - deviation**2 / mean for mean in MEANS])
    cut = -centre / deviation  # given a component, the count is normal around the centre and not negative
    hazard = np.exp(norm.logpdf(cut) - log_ndtr(-cut))
    means = centre + deviation * hazard
    squares = deviation**2 * (1.0 + cut * hazard - hazard**2) + means**2
    mean = (weights[1:] * means).sum(axis=0)
    return weights[0], mean, np.maximum((weights[1:] * squares).sum(axis=0) - mean**2, EXACT**2)


def emptiness_rows(blocks: pd.DataFrame, data: str, runs: int) -> list[dict[str, Any]]:
    """Return a row for each noise and way: mean absolute error beside that of the nearest totals, and bias by size."""
    table = blocks.sort_values("GEOID")
    true = table[[f"pop_{group}" for group in groups_of(blocks)]].sum(axis=1).to_numpy(np.float64)
    group = table["GEOID"].str[:GROUP_WIDTH].to_numpy()
    starts = np.append(np.flatnonzero(np.append(True, group[1:] != group[:-1])), len(true))
    rows = []
    for deviation in NOISE:
        errors: dict[str, list[Floats]] = {}
        for run in range(runs):
            noisy = true + np.random.default_rng(run).normal(0.0, deviation, len(true))
            for name, totals in _estimates(noisy, deviation, true, starts).items():
                errors.setdefault(name, []).append(totals - true)
        plain = float(np.abs(errors["nearest"]).mean())
        for name, found in errors.items():
            mae = float(np.abs(found).mean())
            rows.append(
                {
                    "name": f"accuracy {data} empty blocks {name} noise {deviation:g}",
                    "ours": mae,
                    "peer": plain,
                    "ratio": plain / mae,
                    "unit": "mean absolute error of block totals, against the nearest nonnegative ones",
                    "checked": f"the same noise, {runs} runs",
                    "level": "block",
                    "query": "total",
                    "prior": name,
                    "data": data,
                    "bias": {
                        label: float(np.stack(found)[:, (true >= low) & (true < high)].mean())
                        for label, (low, high) in SIZES.items()
                        if ((true >= low) & (true < high)).any()
                    },
                }
            )
    return rows


def _estimates(noisy: Floats, deviation: float, true: Floats, starts: NDArray[np.int64]) -> dict[str, Floats]:
    zero, mean, variance = spike_and_slab(noisy, deviation)
    empty = zero > 0.5
    found: dict[str, Floats] = {name: np.zeros(len(noisy)) for name in ("nearest", "posterior mean", "likely zeros")}
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        here, total, even = slice(first, last), float(true[first:last].sum()), np.ones(last - first)
        found["nearest"][here] = share_out(noisy[here], even, total)
        found["posterior mean"][here] = share_out(mean[here], variance[here], total)
        some = not empty[here].all()
        found["likely zeros"][here] = (
            share_out(np.where(empty[here], 0.0, noisy[here]), np.where(empty[here], EXACT, 1.0), total)
            if some
            else found["nearest"][here]
        )
    return found
