"""The tracts of a generated county as one family: production's queries and noise, or linear estimates too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.demo import Population, generate
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import Exact, LinearEstimate, condition, distance, update
from das.estimation.problem import FamilyProblem, Measured, Quadratic
from das.plan import presets
from das.plan.load import load
from das.plan.plan import Plan
from das.schema.limits import NO_LIMIT, Limits
from das.schema.query import parse_query

__all__ = ["tracts"]

Ints = NDArray[np.int64]

_BLOCKS, _PEOPLE = 110, 4_400  # for each tract: enough of either for as many tracts as are asked for
_TRACT, _GROUP = 11, 12  # digits of their geocodes


def tracts(children: int, *, coupled: bool, full: bool, seed: int = 1) -> FamilyProblem:
    """Draw a family, ``coupled`` by exact totals and by bounds on group quarters, or not.

    With ``full`` information the objective is the distance to linear estimates from tracts, block groups and blocks.

    Examples
    --------
    >>> family = tracts(2, coupled=True, full=False)
    >>> family.shape[0], [limits.query.name for limits in family.limits]
    (2, ['total', 'hhgq'])
    """
    rng = np.random.default_rng(seed)
    plan = load(presets.folder() / "demo.toml")
    people = generate(blocks=children * _BLOCKS, people=children * _PEOPLE, seed=seed)
    tract, group = (_numbered(people, digits) for digits in (_TRACT, _GROUP))
    wanted = tract < children
    tract, group, facilities = tract[wanted], group[wanted], people.facilities[wanted]
    blocks = _histograms(people, plan.schema.size)[wanted]
    truth, parent = _sums(blocks, tract), blocks.sum(axis=0)
    cells = np.flatnonzero(parent)
    measured = _measured(plan, "tract", truth, rng)
    limits = _limits(plan, truth, _sums(facilities, tract)) if coupled else ()
    correlated = _estimates(plan, blocks, tract, group, measured, limits, cells, rng) if full else None
    return FamilyProblem(
        level="tract",
        geocodes=tuple(f"tract {number}" for number in range(children)),
        cells=cells,
        parent=parent[cells],
        measured=measured,
        limits=limits,
        correlated=correlated,
    )


def _numbered(people: Population, digits: int) -> Ints:
    """Number the areas that the first digits of the geocodes name, in order."""
    area: Ints = np.unique(people.geocodes.astype(f"U{digits}"), return_inverse=True)[1].astype(np.int64)
    return area


def _histograms(people: Population, cells: int) -> Ints:
    counts = np.zeros((len(people.geocodes), cells), dtype=np.int64)
    counts[people.leaf, people.cell] = people.count
    return counts


def _sums(rows: Ints, into: Ints) -> Ints:
    out = np.zeros((int(into[-1]) + 1, rows.shape[1]), dtype=np.int64)
    np.add.at(out, into, rows)
    return out


def _measured(plan: Plan, level: str, truth: Ints, rng: np.random.Generator) -> tuple[Measured, ...]:
    """Measure with rounded normal noise of production's variances; the exact distribution does not matter here."""
    out = []
    for planned in plan.at(level):
        answer, variance = planned.query.answer(truth), planned.mechanism.variance()
        noise = np.rint(rng.normal(0.0, np.sqrt(variance), answer.shape)).astype(np.int64)
        out.append(Measured(query=planned.query, values=answer + noise, variance=variance))
    return tuple(out)


def _limits(plan: Plan, truth: Ints, facilities: Ints) -> tuple[Limits, ...]:
    total, hhgq = parse_query(plan.schema, "total"), parse_query(plan.schema, "hhgq")
    known = total.answer(truth)
    upper = np.where(facilities > 0, 99_999 * facilities, 0)
    upper[:, 0] = NO_LIMIT  # a household is not a facility
    return (Limits(query=total, lower=known, upper=known), Limits(query=hhgq, lower=facilities, upper=upper))


def _estimates(
    plan: Plan,
    blocks: Ints,
    tract: Ints,
    group: Ints,
    measured: tuple[Measured, ...],
    limits: tuple[Limits, ...],
    cells: Ints,
    rng: np.random.Generator,
) -> Quadratic:
    """Combine the estimates of blocks into block groups and those into tracts, as the up-sweep does."""
    basis = Basis.of(plan.schema, [each.query for each in plan.measurements] + list(plan.limited_queries))
    tract_of = np.zeros(int(group[-1]) + 1, dtype=np.int64)
    tract_of[group] = tract
    of_blocks = update(basis, _measured(plan, "block", blocks, rng), None, len(blocks), "block")
    in_groups = _measured(plan, "block_group", _sums(blocks, group), rng)
    of_groups = update(basis, in_groups, _pooled(of_blocks, group), len(tract_of), "block_group")
    known = update(basis, measured, _pooled(of_groups, tract_of), int(tract[-1]) + 1, "tract")
    exact = tuple(Exact(each.query, each.lower) for each in limits if np.array_equal(each.lower, each.upper))
    return distance(basis, condition(basis, known, exact), cells)


def _pooled(known: LinearEstimate, into: Ints) -> LinearEstimate:
    starts = np.searchsorted(into, np.arange(int(into[-1]) + 1))
    return LinearEstimate(
        np.add.reduceat(known.mean, starts, axis=0),
        [np.add.reduceat(block, starts, axis=0) for block in known.covariance],
    )
