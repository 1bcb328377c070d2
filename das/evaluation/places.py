"""Totals of the places of one level or kind of area: errors one by one, along their size, and as a reader sees them.

*Producer's view*: the error of places of a given true size, which the office alone knows. *Consumer's view*: the error
of places of a given published size, and the interval that anybody can state from the published estimates. The two
differ even where noise is unbiased, because a published zero is mostly the zero of a place that is not empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from das.evaluation.bias import jason_b
from das.evaluation.bins import POPULATION_EDGES, bin_names
from das.evaluation.intervals import WIDTH
from das.evaluation.ranking import rank_changes
from das.evaluation.truth import Compared
from das.plan.plan import Plan
from das.storage.layout import ReleaseFolder
from das.storage.shards import shards_of
from geography import Spine

__all__ = ["Places", "consumer_view", "describe", "running", "stated_intervals", "totals_of", "worst"]

Floats = NDArray[np.float64]

WINDOW = 100
"""Places of similar size that the running average combines, or a tenth of all if that is fewer; at least ten."""
POINTS = 60
"""Points of a running average that are kept."""
DOTS = 400
"""Places that are shown one by one in a picture."""
LISTED = 5
"""Places listed by name among the hardest hit."""
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Places:
    """True and published totals of every place, and its stated interval; confidential.

    ``estimate`` and ``deviation`` are those of the published linear estimates, ``nan`` where there is none.
    """

    level: str
    on_spine: bool
    codes: NDArray[np.str_]
    published: Floats
    true: Floats
    estimate: Floats
    deviation: Floats
    noise_std_dev: float | None

    @property
    def errors(self) -> Floats:
        """Published minus true."""
        return self.published - self.true


def totals_of(compared: Compared, codes: NDArray[np.str_], shown: NDArray[np.bool_] | None = None) -> dict[str, Any]:
    """Write the totals out, places without anybody included: codes, published and true."""
    sides = {}
    for name, values in (("published", compared.published), ("true", compared.true)):
        dense = np.zeros(len(codes))
        dense[compared.key] = values
        sides[name] = dense if shown is None else dense[shown]
    return {"level": compared.level, "codes": codes if shown is None else codes[shown], **sides}


def stated_intervals(plan: Plan, spine: Spine, release: ReleaseFolder, level: str) -> tuple[Floats, Floats]:
    """Read the linear estimates of a level's totals and their deviations; ``nan`` where none were published."""
    nothing = np.full(spine.size(level), np.nan)
    queries = [measurement.query for measurement in plan.at(level)]
    names = [query.name for query in queries]
    if "total" not in names or not release.estimates.exists():
        return nothing, nothing
    numbers = sum(query.size for query in queries)
    found: list[list[Floats]] = [[], []]
    for shard in shards_of(spine, level, numbers):
        table = pq.read_table(shard.path(release.estimates), columns=["query", "estimate", "std_dev"])
        table = table.filter(np.asarray(table["query"]) == "total")
        for column, into in zip(("estimate", "std_dev"), found, strict=True):
            into.append(table[column].combine_chunks().flatten().to_numpy(zero_copy_only=False).astype(np.float64))
    estimate, deviation = (np.concatenate(parts) for parts in found)
    return estimate, deviation


def describe(places: Places) -> dict[str, Any]:
    """Everything that is told about the totals of one level or kind of area, as plain data."""
    errors, true = places.errors, places.true
    quantiles = np.quantile(errors, QUANTILES).tolist() if errors.size else []
    return {
        "level": places.level,
        "on_spine": places.on_spine,
        "places": int(errors.size),
        "noise_std_dev": places.noise_std_dev,
        "stated_std_dev": _median(places.deviation[places.deviation > 0]),
        "error_quantiles": dict(zip([f"p{100 * q:g}" for q in QUANTILES], quantiles, strict=False)),
        "inhabited_published_empty": int(((true > 0) & (places.published == 0)).sum()),
        "empty_published_inhabited": int(((true == 0) & (places.published > 0)).sum()),
        "empty": int((true == 0).sum()),
        "ranking": rank_changes(places.published, true),
        "running": running(errors, true),
        "dots": _dots(errors, true),
        "consumer": consumer_view(places),
        "worst": worst(places),
    }


def running(errors: Floats, true: Floats, *, points: int = POINTS) -> list[dict[str, Any]]:
    """Mean error and JASON's B along the true size: empty places by themselves, then a moving window.

    Examples
    --------
    >>> found = running(np.array([2.0, 4.0, -1.0]), np.array([0.0, 0.0, 7.0]))
    >>> [(row["size"], row["places"], row["bias"], row["jason_b"]) for row in found]
    [(0.0, 2, 3.0, 1.0), (7.0, 1, -1.0, -1.0)]
    """
    rows = []
    empty = true == 0
    if empty.any():
        rows.append(_row(errors[empty], true[empty]))
    order = np.argsort(true, kind="stable")[int(empty.sum()) :]
    count = len(order)
    window = min(WINDOW, max(10, count // 10), count)
    if count:
        starts = np.unique(np.linspace(0, count - window, min(points, count - window + 1)).round().astype(int))
        rows += [_row(errors[order[at : at + window]], true[order[at : at + window]]) for at in starts.tolist()]
    return rows


def consumer_view(places: Places, edges: Sequence[int] = POPULATION_EDGES) -> list[dict[str, Any]]:
    """By size: the error that the office knows beside the interval that a reader can state.

    ``producer_*`` are of the places of that true size, ``consumer_*`` of those of that published size;
    ``consumer_bias`` is true minus published, what a reader should expect to be off; ``half_width`` is the mean of the
    stated 95 % intervals, and ``coverage`` the share of them that hold the truth. ``linear_bias`` and ``linear_p95``
    are of the published linear estimates of places of that true size, which have no bias.
    """
    errors = places.errors
    by_true, by_published = (
        np.searchsorted(np.asarray(edges), sizes, side="right") - 1 for sizes in (places.true, places.published)
    )
    stated = places.deviation > 0
    linear = places.estimate - places.true
    hold = np.abs(linear) <= WIDTH * places.deviation
    rows = []
    for number, name in enumerate(bin_names(edges)):
        producer, consumer = by_true == number, by_published == number
        if not producer.any() and not consumer.any():
            continue
        with_interval = consumer & stated
        rows.append(
            {
                "bin": name,
                "producer_places": int(producer.sum()),
                "producer_bias": _mean(errors[producer]),
                "producer_p95": _quantile(np.abs(errors[producer])),
                "linear_bias": _mean(linear[producer & stated]),
                "linear_p95": _quantile(np.abs(linear[producer & stated])),
                "consumer_places": int(consumer.sum()),
                "consumer_bias": _mean(-errors[consumer]),
                "consumer_p95": _quantile(np.abs(errors[consumer])),
                "half_width": _mean(WIDTH * places.deviation[with_interval]),
                "coverage": _mean(hold[with_interval].astype(np.float64)),
            }
        )
    return rows


def worst(places: Places, listed: int = LISTED) -> list[dict[str, Any]]:
    """Places whose total is most wrong for their size: the largest |e| / max(x, 1), then the largest |e|."""
    errors = places.errors
    wrong = np.flatnonzero(errors)
    relative = np.abs(errors[wrong]) / np.maximum(places.true[wrong], 1.0)
    order = wrong[np.lexsort((places.codes[wrong], -np.abs(errors[wrong]), -relative))][:listed]
    return [
        {
            "place": str(places.codes[at]),
            "true": int(places.true[at]),
            "published": int(places.published[at]),
            "error": int(errors[at]),
        }
        for at in order.tolist()
    ]


def _dots(errors: Floats, true: Floats) -> list[list[float]]:
    """Some places as (size, error), evenly spaced in their order by size, the extremes among them."""
    order = np.argsort(true, kind="stable")
    kept = order[np.unique(np.linspace(0, len(order) - 1, min(DOTS, len(order))).round().astype(int))]
    return [[float(true[at]), float(errors[at])] for at in kept.tolist()]


def _row(errors: Floats, true: Floats) -> dict[str, Any]:
    return {
        "size": float(true.mean()),
        "places": int(errors.size),
        "bias": float(errors.mean()),
        "jason_b": float(jason_b(errors)),
        "jason_b_same_sign": float(jason_b(errors, means="same-sign")),
    }


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else float("nan")


def _median(values: Floats) -> float:
    return float(np.median(values)) if values.size else float("nan")


def _quantile(values: Floats) -> float:
    return float(np.quantile(values, 0.95)) if values.size else float("nan")
