"""What could be done about empty places that are published with people: ways to estimate totals, on real blocks.

The totals of a block group's blocks are measured with noise, and the block group's own total is kept. Compared are:

- ``nearest``: the nearest nonnegative totals, which is what estimation does;
- ``posterior mean``: under a spike at zero and a mixture of exponential sizes, both learnt from all noisy totals,
  adjusted to the sum;
- ``likely zeros``: zero wherever the spike is the likelier, the rest shared out;
- ``emptiness measured``: likely zeros, where half of the budget asks of each block whether anybody lives in it;
- ``mixed objective``: a penalty that is larger where the noisy total is smaller. The same penalty for all would
  change nothing, because their sum is fixed.

All see public numbers alone. It is a study of one level and one query, small enough to try ideas on; what it found is
in ``docs/accuracy.md``. For areas off the spine the linear estimates of their blocks are added up and rounded at random
to one of the two nearest integers, so that the mean stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats import norm

from das.bench.real_geography import groups_of
from das.estimation.prior.mixture import posterior_weights
from das.estimation.prior.totals import share_out

__all__ = ["emptiness_rows", "off_spine_rows", "spike_and_slab"]

Floats = NDArray[np.float64]

MEANS = (3.0, 10.0, 30.0, 90.0, 270.0, 800.0)
"""Mean sizes of the exponential components."""
NOISE = (4.35, 10.0)
"""Standard deviations: the block's detailed query under production's shares, and twice as much."""
SIZES = {"0": (0, 1), "1-9": (1, 10), "10-49": (10, 50), "50-99": (50, 100), "100+": (100, 10**9)}
GROUP_WIDTH, TRACT_WIDTH = 12, 11
STUDIES_PER_RUN = 5
"""They are cheap: so many draws of noise for each run of the state."""
EXACT = 1e-3


def spike_and_slab(noisy: Floats, deviation: float, emptiness: Floats | None = None) -> tuple[Floats, Floats, Floats]:
    """Posterior probability of zero, posterior mean and variance of nonnegative counts observed with normal noise.

    `emptiness` adds what was asked directly: the log-likelihood of nobody less that of somebody.

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
    zero = norm.logpdf(noisy, 0.0, deviation) + (0.0 if emptiness is None else emptiness)
    weights = posterior_weights(np.stack([zero, *slabs]))
    centre = np.stack([noisy - deviation**2 / mean for mean in MEANS])
    cut = -centre / deviation  # given a component, the count is normal around the centre and not negative
    hazard = np.exp(norm.logpdf(cut) - log_ndtr(-cut))
    means = centre + deviation * hazard
    squares = deviation**2 * (1.0 + cut * hazard - hazard**2) + means**2
    mean = (weights[1:] * means).sum(axis=0)
    return weights[0], mean, np.maximum((weights[1:] * squares).sum(axis=0) - mean**2, EXACT**2)


@dataclass(frozen=True, eq=False)
class _Blocks:
    """True totals of blocks in the order of their codes; where each block group begins."""

    geocodes: NDArray[np.str_]
    true: Floats
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, blocks: pd.DataFrame) -> _Blocks:
        table = blocks.sort_values("GEOID")
        true = table[[f"pop_{group}" for group in groups_of(blocks)]].sum(axis=1).to_numpy(np.float64)
        codes = table["GEOID"].to_numpy(np.str_)
        group = table["GEOID"].str[:GROUP_WIDTH].to_numpy()
        return cls(codes, true, np.append(np.flatnonzero(np.append(True, group[1:] != group[:-1])), len(true)))

    def shared_out(self, estimates: Floats, variances: Floats) -> Floats:
        """The nearest nonnegative totals of each block group's blocks that keep its total."""
        found = np.zeros(len(estimates))
        for first, last in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            here = slice(first, last)
            found[here] = share_out(estimates[here], variances[here], float(self.true[here].sum()))
        return found


def emptiness_rows(blocks: pd.DataFrame, data: str, runs: int) -> list[dict[str, Any]]:
    """Return a row for each noise and way: mean absolute error beside that of the nearest totals, and bias by size."""
    people, rows = _Blocks.of(blocks), []
    for deviation in NOISE:
        errors: dict[str, list[Floats]] = {}
        for run in range(STUDIES_PER_RUN * runs):
            for name, totals in _estimates(people, deviation, np.random.default_rng(run)).items():
                errors.setdefault(name, []).append(totals - people.true)
        plain = float(np.abs(errors["nearest"]).mean())
        for name, found in errors.items():
            every = np.stack(found)
            mae = np.abs(every).mean(axis=1)
            parts = {
                label: (people.true >= low) & (people.true < high)
                for label, (low, high) in SIZES.items()
                if ((people.true >= low) & (people.true < high)).any()
            }
            rows.append(
                {
                    "name": f"accuracy {data} empty blocks {name} noise {deviation:g}",
                    "ours": float(mae.mean()),
                    "peer": plain,
                    "ratio": plain / float(mae.mean()),
                    "unit": "mean absolute error of block totals, against the nearest nonnegative ones",
                    "checked": f"the same noise, {len(found)} draws",
                    "level": "block",
                    "query": "total",
                    "prior": name,
                    "data": data,
                    "ours_se": float(mae.std(ddof=1) / len(mae) ** 0.5),
                    "bias": {label: float(every[:, part].mean()) for label, part in parts.items()},
                    "bias_se": {
                        label: float(every[:, part].mean(axis=1).std(ddof=1) / len(every) ** 0.5)
                        for label, part in parts.items()
                    },
                }
            )
    return rows


def _estimates(people: _Blocks, deviation: float, rng: np.random.Generator) -> dict[str, Floats]:
    noise = rng.normal(0.0, 1.0, (2, len(people.true)))
    noisy, even = people.true + deviation * noise[0], np.ones(len(people.true))
    zero, mean, variance = spike_and_slab(noisy, deviation)
    half = deviation * 2**0.5  # of each of two questions that share the budget
    asked = (people.true > 0) + half * noise[1]
    other = people.true + half * noise[0]
    likelier = spike_and_slab(other, half, (0.5 - asked) / half**2)[0]
    return {
        "nearest": people.shared_out(noisy, even),
        "posterior mean": people.shared_out(mean, variance),
        "likely zeros": _zeroed(people, noisy, zero > 0.5),
        "emptiness measured": _zeroed(people, other, likelier > 0.5),
        "mixed objective": people.shared_out(noisy - deviation / (1.0 + np.maximum(noisy, 0.0) / deviation), even),
    }


def _zeroed(people: _Blocks, noisy: Floats, empty: NDArray[np.bool_]) -> Floats:
    """Take some blocks for empty and share a block group's people out among the others, if there are any."""
    sizes = np.diff(people.starts)
    none_left = np.repeat(np.add.reduceat(empty.astype(np.int64), people.starts[:-1]) == sizes, sizes)
    empty = empty & ~none_left
    return people.shared_out(np.where(empty, 0.0, noisy), np.where(empty, EXACT, 1.0))


def off_spine_rows(blocks: pd.DataFrame, data: str, runs: int) -> list[dict[str, Any]]:
    """Return a row for each kind of area off the spine: linear estimates, rounded at random, beside published counts.

    The areas are, in each tract: every other block; and all blocks of fewer than ten people, where bias adds up.
    """
    people, deviation, rows = _Blocks.of(blocks), NOISE[0], []
    tract = np.unique([code[:TRACT_WIDTH] for code in people.geocodes.tolist()], return_inverse=True)[1]
    kinds = {
        "every other block of a tract": np.arange(len(tract)) % 2 == 0,
        "blocks of fewer than ten people of a tract": people.true < SIZES["1-9"][1],
    }
    errors: dict[tuple[str, str], list[Floats]] = {}
    sizes = np.diff(people.starts)
    for run in range(STUDIES_PER_RUN * runs):
        rng = np.random.default_rng(run)
        noise = deviation * rng.normal(0.0, 1.0, len(tract))
        lacking = -np.add.reduceat(noise, people.starts[:-1]) / sizes
        linear = people.true + noise + np.repeat(lacking, sizes)  # the best linear estimate, given the sums
        published = people.shared_out(people.true + noise, np.ones(len(tract)))
        for kind, chosen in kinds.items():
            true, one, other = (np.bincount(tract[chosen], each[chosen]) for each in (people.true, linear, published))
            inside = np.bincount(tract[chosen]) > 0
            whole = np.floor(one + rng.random(len(one)))  # up with the probability of the fraction
            errors.setdefault((kind, "linear"), []).append(np.asarray(whole - true, dtype=np.float64)[inside])
            errors.setdefault((kind, "published"), []).append(np.asarray(other - true, dtype=np.float64)[inside])
    for kind in kinds:
        ours, peer = (np.stack(errors[kind, name]) for name in ("linear", "published"))
        biases = {"bias": ours.mean(axis=1), "peer_bias": peer.mean(axis=1)}
        rows.append(
            {
                "name": f"accuracy {data} off the spine, {kind}",
                "ours": float(np.abs(ours).mean()),
                "peer": float(np.abs(peer).mean()),
                "ratio": float(np.abs(peer).mean() / np.abs(ours).mean()),
                "unit": "mean absolute error of area totals, linear estimates rounded at random against published ones",
                "checked": f"the same noise of {deviation:g}, {len(ours)} draws, {ours.shape[1]} areas",
                "query": "total",
                "data": data,
            }
            | {name: float(each.mean()) for name, each in biases.items()}
            | {f"{name}_se": float(each.std(ddof=1) / len(each) ** 0.5) for name, each in biases.items()}
        )
    return rows
