"""Synthetic records of a generated census-like file: all pairs and a few triples against AIM, at the same privacy.

The file is `das.bench.census_like.households`; every setting of both methods was fixed on
`das.bench.census_like.employment`, a file of another structure, or is the published one. AIM has the published model
size of 80 megabytes and the same inference as ours; what differs is which marginals are measured, and with which noise.
Rows of AIM are placed node by node with the sums of each node exact, which is at least as good as its published
generator; ours then move to agree with the model's triples. A third row gives AIM our rows as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.bench.census_like import GeneratedFile, households
from das.noise import RunKey
from das.schema.query import Neighbours
from das.synthesis.compare import errors_of
from das.synthesis.cost import rho_for
from das.synthesis.curator import Curator, Records
from das.synthesis.graphical.aim import fit_aim
from das.synthesis.graphical.model import GraphicalModel
from das.synthesis.graphical.pairs import fit_pairs
from das.synthesis.methods import synthesise
from das.synthesis.rows import placed_rows

__all__ = ["errors_by_method", "rows", "workload_error"]

SEED = 2020
EPSILON, DELTA = Fraction(1), Fraction(1, 10**9)
UNIT = "mean L1 / n over all three-way marginals"

Counts = Mapping[tuple[str, ...], NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    model: float
    placed: float
    controlled: float
    seconds: float
    checked: bool


def rows(*, repetitions: int = 5, n: int = 100_000) -> list[dict[str, Any]]:
    """Return a row for models and two for records; medians over repetitions, in which the two methods take turns.

    ``seconds`` are CPU seconds of one run: measuring, fitting and, but for the first row, records.
    """
    file = households(seed=SEED, n=n)
    budget = rho_for(EPSILON, DELTA)
    ours, peer = [], []
    for repetition in range(repetitions):
        ours.append(_run(fit_pairs, file, budget, f"ours {repetition}"))
        peer.append(_run(fit_aim, file, budget, f"aim {repetition}"))
    agreed = all(run.checked for run in (*ours, *peer))
    checked = (
        f"{'' if agreed else 'NOT '}all runs: rho {float(budget):.6f} spent to 1e-9, fit converged, chi-square below "
        "1, structural zeros exact"
    )
    shared = {"unit": UNIT, "checked": checked, "repetitions": repetitions, "n": n, "rho": str(budget)}
    shared |= {"time_unit": "CPU seconds"}
    seconds = {"seconds": median(run.seconds for run in ours), "peer_seconds": median(run.seconds for run in peer)}
    comparisons = (
        ("synthesis model, all pairs and triples against AIM", "model", "model"),
        ("synthesis rows, controlled rounding against AIM's placing", "controlled", "placed"),
        ("synthesis rows, both by controlled rounding", "controlled", "controlled"),
    )
    return [
        {
            "name": name,
            "ours": (mine := median(getattr(run, of_ours) for run in ours)),
            "peer": (theirs := median(getattr(run, of_peer) for run in peer)),
            "ratio": theirs / mine,
            **seconds,
            **shared,
            "spread": [min(getattr(run, of_ours) for run in ours), max(getattr(run, of_ours) for run in ours)],
            "peer_spread": [min(getattr(run, of_peer) for run in peer), max(getattr(run, of_peer) for run in peer)],
        }
        for name, of_ours, of_peer in comparisons
    ]


def errors_by_method(file: GeneratedFile, methods: Sequence[str]) -> list[dict[str, Any]]:
    """Return errors of pairs and triples, and CPU seconds of the fit, of one run of each method; not a comparison."""
    records, budget, found = Records(file.domain, file.codes), rho_for(EPSILON, DELTA), []
    for name in methods:
        streams = RunKey.for_testing(name).streams(b"bench synthesis")
        curator = Curator(records, streams, framework="zcdp", budget=budget, neighbours=Neighbours.ADD_REMOVE)
        begun = process_time()
        model = synthesise(name, curator, file.constraints, total=len(records)).model
        seconds = process_time() - begun
        errors = {"pairs": errors_of(records, model, 2), "triples": errors_of(records, model, 3)}
        found.append({"method": name, **errors, "seconds": seconds})
    return found


def workload_error(truth: Counts, found: Counts, n: int) -> float:
    """Return the mean over marginals of their L1 distance over n.

    Examples
    --------
    >>> workload_error({("a",): np.array([3, 1])}, {("a",): np.array([2, 2])}, 4)
    0.5
    """
    return float(np.mean([np.abs(found[each] - truth[each]).sum() / n for each in truth]))


def _run(fit: Callable[..., GraphicalModel], file: GeneratedFile, budget: Fraction, key: str) -> _Run:
    n, domain = len(file.codes), file.domain
    records = Records(domain, file.codes)
    streams = RunKey.for_testing(key).streams(b"bench synthesis")
    curator = Curator(records, streams, framework="zcdp", budget=budget, neighbours=Neighbours.ADD_REMOVE)
    begun = process_time()
    model = fit(curator, file.constraints, n)
    controlled = model.rows(n, np.random.default_rng(1))
    seconds = process_time() - begun
    workload = domain.subsets(3)
    truth = _counts(records, workload)
    placed = Records(domain, placed_rows(model, n, np.random.default_rng(1)))
    ours = Records(domain, controlled)
    for made in (placed, ours):
        made.check(file.constraints)
    fine = model.convergence.converged and model.convergence.chi_square < 1
    return _Run(
        model=workload_error(truth, model.marginals(workload), n),
        placed=workload_error(truth, _counts(placed, workload), n),
        controlled=workload_error(truth, _counts(ours, workload), n),
        seconds=seconds,
        checked=fine and 0 <= curator.left < Fraction(1, 10**9),
    )


def _counts(records: Records, workload: Sequence[tuple[str, ...]]) -> Counts:
    return {each: records.counts(each) for each in workload}
