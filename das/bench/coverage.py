"""How often 95 % intervals hold the truth, for every method of inference, over at least 1,000 replications.

Each module of `MODULES` has ``rows(replications, seed)``; posteriors are checked with parameters drawn from the
prior (simulation-based calibration), other intervals at fixed parameters.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["MODULES", "REPLICATIONS", "rows"]

REPLICATIONS = 1_000
MODULES = ("das.bench.coverage_likelihood", "das.bench.coverage_intervals", "das.bench.coverage_udp")
"""Where the rows come from; a module that is not there is left out."""


def rows(*, replications: int = REPLICATIONS, seed: int = 2020, counts: Path | None = None) -> list[dict[str, Any]]:
    """Return a row for each method: name, coverage, replications, nominal.

    With ``counts``, block counts of a real state, the rows are those of its releases alone
    (:mod:`das.bench.coverage_releases`).
    """
    if counts is not None:
        found_in_releases: list[dict[str, Any]] = import_module("das.bench.coverage_releases").rows(counts, seed=seed)
        return found_in_releases
    found: list[dict[str, Any]] = []
    for name in MODULES:
        if find_spec(name) is not None:
            found += import_module(name).rows(replications, seed)
    return found
