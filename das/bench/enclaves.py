"""What a prior does to groups that live together: enclaves of known size, planted into a state.

An enclave is a number of people of one rare group in a single block, in a place where few others of that group live. A
prior that spreads a group like its neighbours takes people away from it. The mean error of enclaves by size, with the
prior and without it, from the very same measurements, says how much. The prior's threshold was chosen with other keys
(``enclaves-0`` and ``-1``) and other enclaves (seed 20100401): those here judge it and chose nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from das.demo import CENRACE, HHGQ, HISPANIC, VOTINGAGE, Population
from das.evaluation.repeat import World, for_testing
from das.evaluation.truth import Compared
from das.plan.plan import Plan
from das.schema.query import answer_names
from geography import Spine

__all__ = ["SIZES", "Enclave", "Scores", "enclave_rows", "plant", "plant_in_counts", "priors_compared"]

Floats = NDArray[np.float64]

SIZES = (2, 5, 10, 20, 50)
RARE = ("aian", "nhopi", "sor")
GROUP_WIDTH = 12  # digits of a geocode that name the block group: at most one enclave in each
SEED = 20_261_118


@dataclass(frozen=True, slots=True)
class Enclave:
    """People of one group in one block."""

    geocode: str
    group: str
    size: int


def plant(state: Population) -> tuple[Population, tuple[Enclave, ...]]:
    """Add adults of rare races to one block in every other block group of a generated state.

    Examples
    --------
    >>> from das.demo import generate
    >>> state, enclaves = plant(generate(blocks=300, people=9_000))
    >>> state.people - 9_000 == sum(enclave.size for enclave in enclaves)
    True
    """
    inhabited = np.unique(state.leaf)
    enclaves = _chosen(state.geocodes[inhabited], RARE)
    leaf = np.searchsorted(state.geocodes, [enclave.geocode for enclave in enclaves])
    shape = (len(HHGQ), len(VOTINGAGE), len(HISPANIC), len(CENRACE))
    cell = np.array(
        [np.ravel_multi_index((0, 1, 0, CENRACE.index(enclave.group)), shape) for enclave in enclaves], dtype=np.int64
    )
    cells = int(np.prod(shape))
    key = np.concatenate([state.leaf * cells + state.cell, leaf * cells + cell])
    every, place = np.unique(key, return_inverse=True)
    count = np.bincount(place, np.concatenate([state.count, [enclave.size for enclave in enclaves]])).astype(np.int64)
    return replace(state, leaf=every // cells, cell=every % cells, count=count), enclaves


def plant_in_counts(blocks: pd.DataFrame, groups: Sequence[str]) -> tuple[pd.DataFrame, tuple[Enclave, ...]]:
    """Add adults to a table of block counts with columns GEOID, ``pop_GROUP`` and ``vap_GROUP``."""
    inhabited = blocks.loc[blocks[[f"pop_{group}" for group in groups]].sum(axis=1) > 0, "GEOID"]
    rare = sorted(groups, key=lambda group: int(blocks[f"pop_{group}"].sum()))[: len(RARE)]
    enclaves = _chosen(inhabited.to_numpy(dtype=np.str_), rare)
    found = blocks.set_index("GEOID")
    for enclave in enclaves:
        for column in (f"pop_{enclave.group}", f"vap_{enclave.group}"):
            found.loc[enclave.geocode, column] += enclave.size
    return found.reset_index(), enclaves


def _chosen(geocodes: NDArray[np.str_], groups: Sequence[str]) -> tuple[Enclave, ...]:
    """Choose a block in every other block group, and a size and a group for each in turn."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    shuffled = geocodes[rng.permutation(len(geocodes))]
    _, first = np.unique([code[:GROUP_WIDTH] for code in shuffled.tolist()], return_index=True)
    chosen = np.sort(shuffled[first])
    chosen = chosen[rng.permutation(len(chosen))[: max(len(SIZES), len(chosen) // 2)]]
    turns = [(size, group) for group in groups for size in SIZES]
    return tuple(
        Enclave(str(code), turns[i % len(turns)][1], turns[i % len(turns)][0]) for i, code in enumerate(chosen)
    )


Bin = tuple[str, str, str]
"""Level, what (enclave, a group, or all) and size."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Means of each run by prior and bin; and by bin the variance of a run's mean change, from its single counts."""

    means: dict[tuple[str, Bin], list[float]] = field(default_factory=dict)
    variances: dict[Bin, list[float]] = field(default_factory=dict)


def priors_compared(
    plan: Plan,
    enclaves: Iterable[Enclave],
    group_query: str,
    *,
    runs: int,
    workdir: Path,
    priors: Sequence[str] = ("none", "sharing"),
) -> Scores:
    """Estimate each run's measurements under each prior.

    Scores are mean errors of enclaves by size, of each group by size, and mean absolute errors of all counts of
    ``group_query`` and of ``detailed``.
    """
    plans = {prior: for_testing(plan.with_prior(prior), workdir / "ledger.sqlite") for prior in priors}
    world = World.tabulate(plans, workdir, ())
    planted, scores = tuple(enclaves), Scores()
    for run in range(runs):
        folder = workdir / f"run-{run}"
        before: dict[Bin, Floats] = {}
        for prior in priors:
            world.run(prior, folder, f"judged-{run}", ())
            for compared in world.compared(prior, folder):
                for (what, size), (errors, number) in _errors(compared, planted, group_query, world.spine).items():
                    where = (compared.level, what, size)
                    scores.means.setdefault((prior, where), []).append(float(errors.sum() / number))
                    if where in before and len(errors) == number == len(before[where]) > 1:
                        changes = errors - before[where]
                        scores.variances.setdefault(where, []).append(float(changes.var(ddof=1) / number))
                    before[where] = errors
        shutil.rmtree(folder)
    return scores


def _errors(
    compared: Compared, enclaves: Sequence[Enclave], group_query: str, spine: Spine
) -> dict[tuple[str, str], tuple[Floats, int]]:
    """Errors of each bin, and of how many counts: of true zeros only those are listed that were published otherwise."""
    query, errors = compared.query, (compared.published - compared.true).astype(np.float64)
    found = {("all", query.name): (np.abs(errors), compared.cells)}
    if query.name != group_query:
        return found
    names = list(answer_names(query))
    size = np.searchsorted(np.array(EDGES), compared.true, side="right") - 1
    for number, name in enumerate(names):
        here = compared.key % query.size == number
        for part, label in enumerate(LABELS):
            listed = errors[here & (size == part)]
            cells = len(listed) if part else compared.cells // query.size - int((here & (size > 0)).sum())
            if cells >= FEWEST:
                found[name, label] = listed, cells
    width = len(spine.geocodes(compared.level)[0])
    unit = spine.locate(compared.level, np.array([enclave.geocode[:width] for enclave in enclaves]))
    key = unit * query.size + np.array([names.index(enclave.group) for enclave in enclaves])
    planted = errors[np.searchsorted(compared.key, key)]  # every enclave has people, so its cell is listed
    for people in sorted({enclave.size for enclave in enclaves}):
        here = np.array([enclave.size == people for enclave in enclaves])
        found["enclave", str(people)] = planted[here], int(here.sum())
    return found


EDGES, LABELS, FEWEST = (0, 1, 5, 10, 50, 100), ("0", "1-4", "5-9", "10-49", "50-99", "100+"), 20


def enclave_rows(scores: Scores, data: str) -> list[dict[str, Any]]:
    """Lay scores out as rows of ``das bench accuracy``: the sharing prior (ours) beside none (peer).

    ``change_se`` is from the differences of single counts, taken as independent; ``change_se_runs`` from whole runs.
    """
    rows = []
    for (prior, where), ours in scores.means.items():
        level, what, size = where
        if prior != "sharing" or level not in ("tract", "block_group", "block"):
            continue
        peer, variances = scores.means["none", where], scores.variances.get(where)
        changes = [one - other for one, other in zip(ours, peer, strict=True)]
        rows.append(
            {
                "name": f"accuracy prior {data} {level} {what} {size}",
                "ours": mean(ours),
                "peer": mean(peer),
                "ratio": mean(peer) / mean(ours) if mean(ours) else None,
                "unit": "mean absolute error" if what == "all" else "mean error, people",
                "checked": f"the same measurements, {len(ours)} runs, prior sharing against none",
                "level": level,
                "query": size if what == "all" else "",
                "prior": "sharing",
                "data": data,
                "group": what,
                "size": size,
                "change": mean(changes),
                "change_se": sum(variances) ** 0.5 / len(variances) if variances else None,
                "change_se_runs": stdev(changes) / len(changes) ** 0.5 if len(changes) > 1 else None,
            }
        )
    return rows
