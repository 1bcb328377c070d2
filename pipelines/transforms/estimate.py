"""Noisy answers and public facts to conforming counts: pool up the spine, estimate family by family on the way down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
from threadpoolctl import threadpool_limits

from das.errors import Problem, UsageError
from das.estimation import estimate_families
from das.estimation.assemble import Family, measured_by_query
from das.estimation.linear.blue import LinearEstimate, update_from_parent
from das.facts.fact import SIGNS, Fact, in_order
from das.plan.plan import Plan, numbers_per_unit
from das.schema.selection import parse_limited
from pipelines.elements.arrays import Arrays
from pipelines.elements.context import basis_of
from pipelines.elements.linear_estimates import estimate_arrays, estimate_of, estimates_of_all
from pipelines.transforms.elements import Answers, Estimated, Geounit, Member, PublicFacts, members, protected_counts

__all__ = ["EstimateFamilies", "PoolEstimates", "facts_of_members"]

MEASURED, FACTS, BELOW, ABOVE = "measured", "facts", "below", "above"
Inputs = Mapping[str, beam.PCollection]


class PoolEstimates(beam.PTransform):
    """Linear estimates of geounits from all that was measured below them, from the leaves to the top.

    Input is a mapping with ``"measured"``, a PCollection of ``(Geounit, Answers)`` of every geounit, and optionally
    ``"facts"``, one of ``(Geounit, PublicFacts)``. Output: ``(Geounit, LinearEstimate)`` of every geounit above the
    leaves, the sum of its children's best linear unbiased estimates; its own answers are not in it yet.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def expand(self, inputs: Inputs) -> beam.PCollection:
        """Pool level by level; a level waits for the one below it."""
        _require_names(inputs)
        pooled: list[beam.PCollection] = []
        for depth in range(len(self.plan.levels), 1, -1):
            known = [*_said_of(inputs, depth), *(_below(found, depth) for found in pooled[-1:])]
            pooled.append(
                known
                | f"gather {depth}" >> beam.Flatten()
                | f"families {depth}" >> beam.GroupByKey()
                | f"pool {depth}"
                >> beam.ParDo(_Pool(self.plan, depth)).with_output_types(tuple[Geounit, LinearEstimate])
            )
        if not pooled:
            return inputs[MEASURED] | "of one level" >> beam.FlatMap(lambda _: ()).with_output_types(
                tuple[Geounit, LinearEstimate]
            )
        return pooled | beam.Flatten()


class EstimateFamilies(beam.PTransform):
    """Conforming integer counts of every geounit, from the top of the spine to its leaves.

    Input is that of :class:`PoolEstimates`. Output: ``(Geounit, Estimated)`` of every geounit. The children of a parent
    add up to it, counts are not negative, and every public fact holds. The plan's ``[estimate]`` settings are used:
    ``information``, ``prior``, ``solver`` and ``passes``. Nothing is spent: it reads what is released or public.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def expand(self, inputs: Inputs) -> beam.PCollection:
        """Pool first where the plan uses the answers of all levels at once; then estimate level by level."""
        _require_names(inputs)
        full = self.plan.settings.estimate.information == "full"
        pooled = inputs | "pool" >> PoolEstimates(self.plan) if full else None
        found: list[beam.PCollection] = []
        for depth in range(1, len(self.plan.levels) + 1):
            known = _said_of(inputs, depth)
            if pooled is not None and depth < len(self.plan.levels):
                known.append(_below(pooled, depth))
            if found:
                known.append(found[-1] | f"to children {depth}" >> beam.Map(_from_above).with_output_types(Member))
            found.append(
                known
                | f"gather {depth}" >> beam.Flatten()
                | f"families {depth}" >> beam.GroupByKey()
                | f"estimate {depth}"
                >> beam.ParDo(_Estimate(self.plan, depth)).with_output_types(tuple[Geounit, Estimated])
            )
        return found | beam.Flatten()


def _require_names(inputs: Inputs) -> None:
    if not {MEASURED} <= inputs.keys() <= {MEASURED, FACTS}:
        given = ", ".join(sorted(inputs))
        raise UsageError(Problem("inputs", f"are named {given}", f"name them {MEASURED!r} and, if any, {FACTS!r}"))


def _said_of(inputs: Inputs, depth: int) -> list[beam.PCollection]:
    """What was measured of the geounits of one level, and what is public about them."""
    return [
        found
        | f"{name} of {depth}" >> beam.Filter(lambda element: element[0].depth == depth)
        | f"{name} by parent {depth}" >> members(name, lambda value: value.arrays())
        for name, found in inputs.items()
    ]


def _below(pooled: beam.PCollection, depth: int) -> beam.PCollection:
    """What was pooled of the geounits of one level."""
    return (
        pooled
        | f"below of {depth}" >> beam.Filter(lambda element: element[0].depth == depth)
        | f"below by parent {depth}" >> members(BELOW, estimate_arrays)
    )


def _from_above(element: tuple[Geounit, Estimated]) -> Member:
    """A geounit's counts and estimate, addressed to the family of which it is the parent."""
    return element[0], (ABOVE, element[0], element[1].arrays())


class _OfFamily(beam.DoFn):
    """A step on one family: a parent, and what is known of it and of its children."""

    def __init__(self, plan: Plan, depth: int) -> None:
        self.plan, self.depth = plan, depth

    def setup(self) -> None:
        """Give linear algebra one thread: families are small, and its sums must not depend on the number of cores."""
        self._threads = threadpool_limits(limits=1)

    def teardown(self) -> None:
        """Give the threads back."""
        self._threads.restore_original_limits()

    def family(self, said: Iterable[tuple[str, Geounit, Arrays]]) -> tuple[list[Geounit], Family, Estimated | None]:
        """The children in order, their family, and what was estimated of the parent."""
        plan, level = self.plan, self.plan.levels[self.depth - 1]
        named: dict[str, dict[Geounit, Arrays]] = {MEASURED: {}, FACTS: {}, BELOW: {}, ABOVE: {}}
        for name, geounit, arrays in said:
            if geounit in named[name]:
                raise _mismatch(geounit, f"has two elements in {name!r}")
            named[name][geounit] = arrays
        children = sorted(named[MEASURED])
        if not children:
            (geounit, *_) = next(each for each in named.values() if each)
            raise _mismatch(geounit, "or its children are not in 'measured'")
        uses_below = plan.settings.estimate.information == "full" and self.depth < len(plan.levels)
        for name in (FACTS, *([BELOW] if uses_below else [])):
            if (named[name] and named[name].keys() != set(children)) or (name == BELOW and not named[name]):
                raise _mismatch(children[0], f"and its siblings are not the same in {name!r} and in 'measured'")
        answers = [Answers.of(named[MEASURED][child]).values for child in children]
        for child, values in zip(children, answers, strict=True):
            if values.shape != (numbers_per_unit(plan.at(level)),):
                raise _mismatch(child, "has answers that are not those of the plan")
        family = Family(
            basis=basis_of(plan),
            level=level,
            children=len(children),
            measured=measured_by_query(plan.at(level), np.stack(answers)),
            facts=facts_of_members(plan, [named[FACTS][child] for child in children if child in named[FACTS]]),
            below=estimates_of_all([estimate_of(named[BELOW][child]) for child in children]) if uses_below else None,
        )
        above = [Estimated.of(arrays) for arrays in named[ABOVE].values()]
        return children, family, above[0] if above else None


def facts_of_members(plan: Plan, found: list[Arrays]) -> tuple[Fact, ...]:
    """The facts on a family, from those on each child."""
    if not found:
        return ()
    facts = []
    for key in found[0]:
        sign, _, name = key.partition(" ")
        mark = next((each for each in SIGNS if each == sign), None)
        if mark is None or any(key not in arrays for arrays in found):
            raise UsageError(Problem(f"fact {key!r}", "has no sign, or not every sibling has it", "see PublicFacts"))
        values = np.stack([PublicFacts.of(arrays).values[key] for arrays in found])
        facts.append(Fact(parse_limited(plan.schema, name), mark, values))
    return in_order(plan.limited_queries, tuple(facts))


def _mismatch(geounit: Geounit, reason: str) -> UsageError:
    return UsageError(Problem(f"geounit {geounit.geocode!r}", reason, "give one element for each geounit"))


class _Pool(_OfFamily):
    """Sum a family's linear estimates: they estimate its parent."""

    def process(self, element: tuple[Geounit, Any]) -> Iterator[tuple[Geounit, LinearEstimate]]:
        """Yield the parent and its estimate."""
        parent, said = element
        yield parent, self.family(said)[1].pooled()


class _Estimate(_OfFamily):
    """Solve and round a family."""

    def process(self, element: tuple[Geounit, Any]) -> Iterator[tuple[Geounit, Estimated]]:
        """Yield each child's counts and linear estimate."""
        settings = self.plan.settings.estimate
        children, family, above = self.family(element[1])
        if (above is None) != (self.depth == 1):
            raise _mismatch(element[0], "is a parent without answers of its own")
        linear = family.estimate_alike() if settings.information == "full" else None
        parent = None if above is None else (above.counts.cell, above.counts.count)
        problem = family.problem(tuple(child.geocode for child in children), parent, linear, settings.prior)
        passes = self.plan.passes(family.level)
        (solved,) = estimate_families([problem], solver=settings.solver, passes=passes)
        if linear is not None and above is not None and above.linear is not None:
            linear = update_from_parent(family.basis, linear, above.linear)
        for row, (child, counts) in enumerate(zip(children, solved.counts, strict=True)):
            some = np.flatnonzero(counts)
            mine = protected_counts(solved.cells[some], counts[some])
            yield child, Estimated(mine, None if linear is None else linear.unit(row))
