"""The fast solver of a family against cvxpy: CPU seconds a family, in one process, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import process_time
from typing import Any

from threadpoolctl import threadpool_limits

from das.bench.tracts import tracts
from das.estimation.problem import FamilyProblem
from das.estimation.solvers.active_set import solve_families
from das.estimation.solvers.reference import Solvers, solve
from das.estimation.verify import objective

__all__ = ["rows"]

CHILDREN = (4, 16, 64)
FAMILIES = {"level": 4, "full": 1}
"""How many families are solved: together by our solver, one by one by cvxpy, which takes one program at a time."""
GAP = 1e-6
PEERS: dict[str, Solvers] = {
    "level": (("PIQP", {}),),
    "full": (("SCS", {"eps_abs": 1e-7, "eps_rel": 1e-8}),),
}
"""Of PIQP, Clarabel, OSQP and SCS the fastest that reaches the gap on such families.

Sparse sums suit the interior point. With a dense Hessian for each child it takes minutes, and SCS, at tolerances that
it needs for sums to hold, takes seconds.
"""


def rows(
    *,
    repetitions: int = 5,
    children: Sequence[int] = CHILDREN,
    information: Sequence[str] = ("level", "full"),
) -> list[dict[str, Any]]:
    """Return one row for each use of information, number of children, and limits or none.

    Ours is all of :func:`das.estimation.solvers.active_set.solve_families`, its certificate included; cvxpy's is the
    chained and support-restricted reference with the fastest solver, its compilation included, as each family is a
    program of its own. Linear algebra has one thread, as in the pipeline.
    """
    found = []
    with threadpool_limits(limits=1):
        for use in information:
            for count in children:
                for coupled in (False, True):
                    seeds = range(1, FAMILIES[use] + 1)
                    families = [tracts(count, coupled=coupled, full=use == "full", seed=seed) for seed in seeds]
                    found.append(_row(families, use, coupled, repetitions))
    return found


def _row(families: list[FamilyProblem], information: str, coupled: bool, repetitions: int) -> dict[str, Any]:
    peer, many = PEERS[information], len(families)
    ours = solve_families(families)  # compiles, the first time
    best = [objective(family, found.x) for family, found in zip(families, ours, strict=True)]
    theirs = [objective(family, solve(family, peer).x) for family in families]
    excess = max((value / least - 1.0 for value, least in zip(theirs, best, strict=True)), key=abs)
    our_times, peer_times = [], []
    for _ in range(repetitions):
        peer_times.append(_seconds(lambda: [solve(family, peer) for family in families]) / many)
        our_times.append(_seconds(lambda: solve_families(families)) / many)
    gap, children = max(found.gap for found in ours), len(families[0].geocodes)
    return {
        "name": f"estimate {information} {children} children{', coupled' if coupled else ''}",
        "ours": median(our_times),
        "peer": median(peer_times),
        "ratio": median(peer_times) / median(our_times),
        "unit": "CPU seconds per family",
        "checked": f"{'same' if abs(excess) <= GAP else 'NOT the same'} optimum: cvxpy's objective differs from ours "
        f"by {excess:+.1e} of it; ours is certified to {gap:.1e}",
        "children": children,
        "families": many,
        "cells": [len(family.cells) for family in families],
        "coupled": coupled,
        "information": information,
        "gap": gap,
        "solver": "+".join(dict.fromkeys(found.solver for found in ours)),
        "peer_solver": f"cvxpy, {peer[0][0]}",
        "repetitions": repetitions,
    }


def _seconds(call: Callable[[], object], at_least: float = 0.02) -> float:
    """Return CPU seconds of one call, averaged over enough calls for the timer's resolution."""
    calls, seconds, start = 0, 0.0, process_time()
    while seconds < at_least:
        call()
        calls += 1
        seconds = process_time() - start
    return seconds / calls
