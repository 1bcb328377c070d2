"""Collect the public facts, propagate them up the spine, and refuse contradictions.

A fact at one level implies one at every level above it: the children's lower bounds, upper bounds and exact values add
up. With these sums, and the joint limits that they do not imply (:mod:`das.facts.splitting`), each parent is estimated
so that its counts can be split among its children.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from das.errors import InfeasibleError, InputError, Problem, ProblemsFound
from das.facts.conflict import infeasible_tops, minimal_conflict
from das.facts.fact import Declared, Fact, Facts, Sign, tighter
from das.facts.published import is_release, released_answers
from das.facts.splitting import Upsweep, sweep_up
from das.plan.constraint import Bound, Published
from das.plan.files import named_file
from das.plan.plan import Plan
from das.schema.column_names import answer_columns
from das.schema.limits import NO_LIMIT
from das.schema.query import Query, answer_names
from geography import Spine, column_names, read_text_columns
from geography.arrays import Codes
from geography.lost_zeros import lost_here, lost_there, zeros_problems
from geography.problem_list import Source, listed, nearest
from geography.reading import read_parquet
from geography.summation import sum_ranges

__all__ = ["TrueAnswers", "facts_of", "require_agreement"]

TrueAnswers = Callable[[str, Query], NDArray[np.int64]]
_CONFLICTS = 3
"""Contradictions that are named in full; geounits with others are counted."""


def facts_of(plan: Plan, spine: Spine, true_answers: TrueAnswers | None) -> Facts:
    """Collect the facts of every level, those implied from below included.

    Parameters
    ----------
    plan, spine
        What is declared, and where.
    true_answers
        Gives the exact answers that invariants publish; ``None`` where no record may be read, and then invariants are
        left out.

    Raises
    ------
    InputError
        A bound's file does not fit, or the data do not obey a bound; no count is shown.
    InfeasibleError
        The facts contradict one another, or leave open whether the counts of every parent can be split.
    """
    declared = _declared(plan, spine, true_answers)
    # The congenial method needs no guarantee: its messages hold the constraints of all levels below.
    wanted = plan.settings.estimate.split == "guaranteed" and plan.mechanism_stage.measures
    if true_answers is not None and wanted:
        return require_agreement(declared, spine)
    # Without the invariants it is unknown whether parents can be split, and the caller may not need to know.
    swept = sweep_up(_propagated(declared, spine), spine)
    _refuse(_contradictions(declared, swept, spine))
    return swept.facts


def require_agreement(declared: tuple[Declared, ...], spine: Spine) -> Facts:
    """Propagate declared facts up the spine so that every parent that keeps them can be split among its children.

    Raises
    ------
    InfeasibleError
        Naming a minimal set of facts that cannot hold together, or the queries for which no limits suffice.
    """
    swept = sweep_up(_propagated(declared, spine), spine)
    _refuse([*_contradictions(declared, swept, spine), *swept.refused])
    return swept.facts


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise InfeasibleError(problems)


def _contradictions(declared: tuple[Declared, ...], swept: Upsweep, spine: Spine) -> list[Problem]:
    """Name minimal sets of facts that cannot hold together, at the lowest geounits where they meet."""
    infeasible = swept.infeasible
    if not infeasible:
        tops = infeasible_tops(swept.facts, spine)
        infeasible = {spine.levels[0]: tops} if len(tops) else {}
    problems: list[Problem] = []
    for level, units in infeasible.items():
        for unit in units[:_CONFLICTS].tolist():
            problems += minimal_conflict(declared, swept.facts, spine, level, unit)
        if len(units) > _CONFLICTS:
            problems.append(Problem(level, f"facts contradict one another at {len(units) - _CONFLICTS} more geounits"))
    return problems


def _declared(plan: Plan, spine: Spine, true_answers: TrueAnswers | None) -> tuple[Declared, ...]:
    """Read every declared fact, and all problems with them."""
    problems: list[Problem] = []
    found: list[Declared] = []
    if true_answers is not None:
        for invariant in plan.invariants:
            fact = Fact(invariant.query, "=", true_answers(invariant.level, invariant.query))
            found.append(Declared(invariant.level, fact, f"invariant: {invariant.reason}", shown=False))
    for bound in plan.bounds:
        before = len(problems)
        try:
            values = _bound_values(plan, bound, spine, problems)
        except ProblemsFound as error:  # the file cannot be read at all
            problems += error.problems
            continue
        if true_answers is not None and len(problems) == before:
            problems += _disobedience(bound, values, true_answers(bound.level, bound.query))
        found.append(Declared(bound.level, Fact(bound.query, bound.sense, values), bound.source))
    for published in plan.published:
        try:
            values = _published_values(plan, published, spine, problems)
        except ProblemsFound as error:
            problems += error.problems
            continue
        found += [Declared(published.level, fact, published.source) for fact in _equal(published.query, values)]
    if problems:
        raise InputError(problems)
    return tuple(found)


def _propagated(declared: tuple[Declared, ...], spine: Spine) -> Facts:
    """Propagate facts upwards: combine each level's facts with the sums of those below it."""
    facts: Facts = {}
    below: tuple[Fact, ...] = ()
    for level in reversed(spine.levels):
        found: dict[tuple[str, Sign], Fact] = {}
        for fact in below:  # one level further up
            summed = np.minimum(sum_ranges(fact.values, spine.first_child(level)), NO_LIMIT)
            found[fact.query.name, fact.sign] = Fact(fact.query, fact.sign, summed)
        for each in declared:
            if each.level == level:
                for fact in _beside(each.fact, found):
                    found[fact.query.name, fact.sign] = tighter(fact, found.get((fact.query.name, fact.sign)))
        below = facts[level] = tuple(found.values())
    return {level: facts[level] for level in spine.levels}


def _beside(fact: Fact, found: dict[tuple[str, Sign], Fact]) -> tuple[Fact, ...]:
    """Write an exact value that contradicts an earlier one as two limits, so that both are kept and conflict."""
    earlier = found.get((fact.query.name, "="))
    if fact.sign != "=" or earlier is None or np.array_equal(earlier.values, fact.values):
        return (fact,)
    at_least = np.where(fact.values < NO_LIMIT, fact.values, 0)
    return Fact(fact.query, ">=", at_least), Fact(fact.query, "<=", fact.values)


def _disobedience(bound: Bound, values: NDArray[np.int64], truth: NDArray[np.int64]) -> list[Problem]:
    """Say that the data break a bound, and not where: that a place has more people than a limit is about them."""
    if not (truth < values if bound.sense == ">=" else truth > values).any():
        return []
    where = f"query {bound.query.name!r} at level {bound.level!r}"
    reason = f"the data do not obey the declared bound {bound.sense} {bound.source}"
    remedy = "mend the source of the bound, or declare fewer facts; where they differ, only the records themselves say"
    return [Problem(where, reason, remedy)]


def _bound_values(plan: Plan, bound: Bound, spine: Spine, problems: list[Problem]) -> NDArray[np.int64]:
    """Read a bound's file: a row per geounit, a column per answer."""
    path = named_file(plan, bound.source)
    known = column_names(path)
    # A table of an earlier release spells an answer's labels as its columns do.
    spelt = zip(answer_names(bound.query), answer_columns(bound.query), strict=True)
    names = [name if name in known else column for name, column in spelt]
    values = np.zeros((spine.size(bound.level), bound.query.size), dtype=np.int64)
    columns = [name for name in names if name in known]
    unnamed = [i for i, name in enumerate(names) if name not in known]
    if bound.sense == "<=":
        values[:, unnamed] = NO_LIMIT
    if not columns:
        problems.append(
            Problem(
                bound.source,
                f"has no column named for an answer of {bound.query.name!r}",
                nearest(answer_names(bound.query)[0], known),
            )
        )
        return values
    geocodes = read_text_columns(path, [bound.geocode], at_least=0)[bound.geocode]  # there may be no facility at all
    numbers = _number_texts(path, columns)
    source = Source.of(bound.source)
    unit = spine.locate(bound.level, geocodes)
    here, there = lost_here(geocodes, spine, bound.level), lost_there(geocodes, spine, bound.level)
    problems += zeros_problems(here, there, source)
    problems += listed(
        np.flatnonzero((unit < 0) & ~here & ~there),
        lambda i: Problem(source.row(i), f"{str(geocodes[i])!r} is not a {bound.level} of the spine"),
        source,
    )
    _, first = np.unique(unit, return_index=True)
    repeated = np.setdiff1d(np.flatnonzero(unit >= 0), first)
    problems += listed(
        repeated,
        lambda i: Problem(source.row(i), f"{str(geocodes[i])!r} has an earlier row", "keep one"),
        source,
    )
    if (unit >= 0).all() and not len(repeated):
        problems += _unlisted(bound, spine, unit, values)
    for name in columns:
        text = np.strings.strip(numbers[name])
        whole = np.strings.isdecimal(text) & (np.strings.str_len(text) <= 12)
        problems += listed(
            np.flatnonzero(~whole),
            lambda i, name=name: Problem(source.row(i), f"{name!r} is not a whole number"),  # type: ignore[misc]
            source,
        )
        good = whole & (unit >= 0)
        values[unit[good], names.index(name)] = np.minimum(text[good].astype(np.int64) * bound.factor, NO_LIMIT)
    return values


def _published_values(plan: Plan, published: Published, spine: Spine, problems: list[Problem]) -> NDArray[np.int64]:
    """Read what an earlier release published; ``NO_LIMIT`` where it says nothing."""
    path = named_file(plan, published.source)
    if is_release(path):
        return released_answers(published, path, spine, problems)
    if path.is_dir():
        raise InputError(Problem(published.source, "holds no finished release", "name its folder, or a table of it"))
    table = Bound(published.query, published.level, "<=", published.source, published.geocode, 1, "", "unlimited")
    values = _bound_values(plan, table, spine, problems)
    geocodes, source = spine.geocodes(published.level), Source.of(published.source)
    without = spine.real(published.level) & (values >= NO_LIMIT).all(axis=1)
    problems += listed(
        np.flatnonzero(without),
        lambda i: Problem(published.source, f"has no row for {published.level} {geocodes[i]}", "publish it whole"),
        source,
    )
    return values


def _equal(query: Query, values: NDArray[np.int64]) -> tuple[Fact, ...]:
    """Facts that answers equal these values, where there are any."""
    if (values < NO_LIMIT).all():
        return (Fact(query, "=", values),)
    return Fact(query, ">=", np.where(values < NO_LIMIT, values, 0)), Fact(query, "<=", values)


def _unlisted(bound: Bound, spine: Spine, unit: NDArray[np.int64], values: NDArray[np.int64]) -> list[Problem]:
    """Fill in the geounits without a row as the bound declares, or report that their upper bounds are unknown.

    A lower bound of zero says nothing, so there a row may be left out. A placeholder is not a geounit and has no row.
    """
    if bound.sense == ">=" or bound.missing == "zero":
        return []
    without = np.ones(len(values), dtype=bool)
    without[unit] = False
    if bound.missing == "unlimited":
        values[without] = NO_LIMIT
        return []
    values[without & ~spine.real(bound.level)] = NO_LIMIT
    geocodes = spine.geocodes(bound.level)
    return listed(
        np.flatnonzero(without & spine.real(bound.level)),
        lambda i: Problem(
            bound.source,
            f"has no row for {bound.level} {geocodes[i]}, so its upper bound on {bound.query.name!r} is unknown",
            'add the row, or say `missing = "zero"` or `missing = "unlimited"` in the bound',
        ),
        Source(bound.source),
    )


def _number_texts(path: Path, columns: list[str]) -> dict[str, Codes]:
    """Read columns of numbers as they are written: a Parquet file may hold them as numbers."""
    if path.suffix != ".parquet":
        return read_text_columns(path, columns, at_least=0)
    table = read_parquet(path, columns)
    return {name: np.array([str(value) for value in table[name].to_pylist()], dtype=np.str_) for name in columns}
