"""Arrange what a plan measures, fixes or bounds as a tree of counts, or say why that is impossible.

A count is a geounit and an answer of a query there. Two counts either nest or have nobody in common exactly if, on the
way down the spine, each query refines all that came before it: then the counts form a tree, and noise on them can be
conditioned exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from das.accounting.conditioned_tree import PROMISED
from das.accounting.joint import conditioned_on_tree
from das.accounting.policies import guarantee
from das.errors import ConfigError, Problem
from das.noise.interval_arithmetic import is_tabled
from das.noise.mechanisms import Mechanism
from das.plan.for_accountant import hierarchical_plan
from das.plan.plan import Plan
from das.schema.query import Neighbours, Query, parse_query

__all__ = ["HasSizes", "Layer", "TreeOfCounts", "tree_of"]


class HasSizes(Protocol):
    """Something that knows how many geounits a level has; :class:`geography.Spine` does."""

    def size(self, level: str) -> int:
        """Return the number of geounits of a level."""


@dataclass(frozen=True)
class Layer:
    """Counts of one query in the geounits of one level; without noise, a layer only sums others or is known exactly."""

    level: str
    query: Query
    noise: Mechanism | None

    @cached_property
    def reached(self) -> NDArray[np.bool_]:
        """Answers that somebody can be counted in: the others are structural zeros."""
        out = np.zeros(self.query.size, dtype=np.bool_)
        out[self.query.index[self.query.schema.possible]] = True
        return out


@dataclass(frozen=True)
class TreeOfCounts:
    """The layers of each level, coarse to fine; a level begins with the partition in which the one above ended.

    So every step goes either down the spine, within one answer, or to finer answers, within one geounit.
    """

    levels: tuple[str, ...]
    of_level: dict[str, tuple[Layer, ...]]

    def __getitem__(self, level: str) -> tuple[Layer, ...]:
        return self.of_level[level]

    def splits(self, spine: HasSizes) -> int:
        """How many counts are split into others: a public number, of the tree alone."""
        found = 0
        for level in self.levels:
            depth, layers = self.levels.index(level), self[level]
            found += spine.size(self.levels[depth - 1]) * int(layers[0].reached.sum()) if depth else 0
            found += spine.size(level) * sum(int(layer.reached.sum()) for layer in layers[:-1])
        return max(1, found)

    def counts(self, spine: HasSizes) -> int:
        """How many counts there are: a public number too, which the rounding errors of a draw are proportional to."""
        return sum(spine.size(level) * int(layer.reached.sum()) for level in self.levels for layer in self[level])

    def explain(self) -> str:
        """Say the tree in one line, top down."""
        words = (
            f"{layer.level} {layer.query.name}" + ("" if layer.noise else " (not measured)")
            for level in self.levels
            for layer in self[level]
        )
        return " > ".join(words)


def tree_of(plan: Plan) -> TreeOfCounts:
    """Arrange everything a plan measures, fixes or bounds as one tree.

    Raises
    ------
    ConfigError
        Two counts overlap without one holding the other, noise is beyond the sampler's proved range, or the promise is
        not proved for such a plan; says which, and what to change. Nothing of this depends on a record, so it is
        refused before anything is charged.
    """
    entries = {level: _at(plan, level) for level in plan.levels}
    problems = [*_problems(plan, entries), *_unaccounted(plan)]
    if problems:
        raise ConfigError(problems)
    of_level: dict[str, tuple[Layer, ...]] = {}
    above: Query | None = None
    for depth, level in enumerate(plan.levels):
        layers = entries[level]
        if not layers:  # nothing is known here: it is as fine as what comes first below
            coarsest = next(entries[below][0].query for below in plan.levels[depth:] if entries[below])
            layers = (Layer(level, above or coarsest, None),)
        elif above is not None and not above.same_answers(layers[0].query):
            layers = (Layer(level, above, None), *layers)
        of_level[level] = layers
        above = layers[-1].query
    return TreeOfCounts(plan.levels, of_level)


def _at(plan: Plan, level: str, *, measured: bool = True) -> tuple[Layer, ...]:
    noisy = {m.query.name: Layer(level, m.query, m.mechanism) for m in plan.at(level)} if measured else {}
    known = [i.query for i in plan.invariants if i.level == level]
    known += [b.query for b in plan.bounds if b.level == level]
    others = {query.name: Layer(level, query, None) for query in known if query.name not in noisy}
    # Equal numbers of answers: the same, or found to cross; of two that are the same, the measured one is below.
    return tuple(sorted([*others.values(), *noisy.values()], key=lambda layer: int(layer.reached.sum())))


def _problems(plan: Plan, entries: dict[str, tuple[Layer, ...]]) -> Iterator[Problem]:
    chain = [layer for level in plan.levels for layer in entries[level]]
    for coarse, fine in pairwise(chain):
        if not fine.query.refines(coarse.query):
            inside = f"at {fine.level}" if fine.level == coarse.level else f"at {coarse.level} and at {fine.level}"
            yield Problem(
                f"strategy.queries.{fine.level}",
                f"{fine.query.name!r} does not refine {coarse.query.name!r}: counts {inside} overlap without one "
                "holding the other, so the system is not laminar",
                _alternative(plan),
            )
            return  # one crossing is enough: each further one may be the same
    for layer in chain:
        if layer.noise is not None and not is_tabled(layer.noise.weights):
            yield Problem(
                f"strategy.queries.{layer.level}",
                f"the noise of {layer.query.name!r} spreads over more counts than the congenial sampler can prove "
                "(a standard deviation of about 5,800, or a Laplace scale of 262)",
                'give it a larger share of the budget, or use method = "nonnegative-l2"',
            )
    leaf = plan.levels[-1]
    last = entries[leaf][-1] if entries[leaf] else None
    if last is None or last.noise is None or int(last.reached.sum()) < int(plan.schema.possible.sum()):
        yield Problem(
            f"strategy.queries.{leaf}",
            f"the congenial method draws every cell of each {leaf}, and nothing measures them",
            "give 'detailed' a share there",
        )


def _unaccounted(plan: Plan) -> Iterator[Problem]:
    """What the theorems of ``das/accounting/conditioned_tree.md`` do not cover."""
    if plan.settings.privacy.neighbours is Neighbours.ADD_REMOVE:
        reason = "'add-remove' is not accounted for the congenial method: conditioning is proved for replaced records"
        yield Problem("privacy.neighbours", reason, 'use neighbours = "replace", or method = "nonnegative-l2"')
    if plan.published:
        # Theorem 3 steps back towards the true counts within the facts; an earlier release's noise leaves them outside.
        reason = "an earlier release's table is noisy, and conditioning is proved for facts that the true counts keep"
        yield Problem("published", reason, 'leave it out, or use method = "nonnegative-l2"')
    whole = hierarchical_plan(plan)
    found = guarantee(whole, "nearest", plan.settings.privacy.delta)
    if found.status == "proved" and conditioned_on_tree(found, whole, PROMISED).status == "not supported":
        # Not even the weakest promise could be stated.
        reason = "there is so little noise that the congenial sampler's errors, times e^epsilon, exceed delta"
        where = "privacy.rho" if plan.framework == "zcdp" else "privacy.epsilon"
        yield Problem(where, reason, 'spend less, or use method = "nonnegative-l2"')


def _alternative(plan: Plan) -> str:
    """The nearest laminar plan of two simple kinds, with the same facts: the one that keeps more of the budget."""
    leaf = plan.levels[-1]
    detailed, total = parse_query(plan.schema, "detailed"), parse_query(plan.schema, "total")
    kept = {"detailed": Fraction(0), "total": Fraction(0)}
    for m in plan.measurements:
        if m.query.name in kept:
            kept[m.query.name] += m.share if m.query.name == "detailed" or m.level != leaf else 0
        if m.query.name == "detailed" and m.level == leaf:
            kept["total"] += m.share
    words = {
        "detailed": "measure 'detailed' alone at every level",
        "total": f"measure 'total' alone above {leaf} and 'detailed' at {leaf}",
    }
    for name in sorted(kept, key=lambda name: -kept[name]):  # stable: cells first where both keep as much
        chain: list[Query] = []
        for level in plan.levels:
            facts = [layer.query for layer in _at(plan, level, measured=False)]
            chain += [*facts, detailed if name == "detailed" or level == leaf else total]
            chain[-len(facts) - 1 :] = sorted(chain[-len(facts) - 1 :], key=lambda query: query.size)
        if all(fine.refines(coarse) for coarse, fine in pairwise(chain)):
            return f'{words[name]}, or use method = "nonnegative-l2"'
    return 'the public facts cross whatever is measured: leave some out, or use method = "nonnegative-l2"'
