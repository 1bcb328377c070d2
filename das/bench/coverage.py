"""How often 95 % intervals hold the truth, for every method of inference, over at least 1,000 replications.

Each module of `MODULES` has ``rows(replications, seed, pool, finished)``; posteriors are checked with parameters drawn
from the prior (simulation-based calibration), other intervals at fixed parameters.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from das.bench.replications import Finished, Row, pool_of_processes

__all__ = ["MODULES", "REPLICATIONS", "rows"]

REPLICATIONS = 1_000
MODULES = ("das.bench.coverage_likelihood", "das.bench.coverage_intervals", "das.bench.coverage_udp")
"""Where the rows come from; a module that is not there is left out."""


def rows(
    *,
    replications: int = REPLICATIONS,
    seed: int = 2020,
    counts: Path | None = None,
    finished: Finished = lambda row: None,
) -> list[Row]:
    """Return a row for each method: name, coverage, replications, nominal; ``finished`` is told each as it ends.

    With ``counts``, block counts of a real state, the rows are those of its releases alone
    (:mod:`das.bench.coverage_releases`).
    """
    if counts is not None:
        found_in_releases: list[Row] = import_module("das.bench.coverage_releases").rows(counts, seed=seed)
        return found_in_releases
    found: list[Row] = []
    with pool_of_processes() as pool:
        for name in MODULES:
            if find_spec(name) is not None:
                found += import_module(name).rows(replications, seed, pool, finished)
    return found
