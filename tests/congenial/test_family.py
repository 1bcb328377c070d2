"""Families of the tree, drawn without Beam, against every table of a world small enough to list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

import das
from das.congenial.family import Box, Family
from das.noise.stream import RunKey, Streams
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.plan.tree_of_counts import tree_of
from das.storage.shards import families
from geography import Spine

TOTAL = 4
ROOM = 2
TRUTH = np.array([[2, 0], [0, 1], [1, 0]])  # blocks x cells
UNITS = "geocode\n011\n012\n021\n"
FLIPPED = {"flipped": {"men": ["m"], "women": ["f"]}}  # the same groups in another order
SCHEMA = {"attribute": [{"name": "sex", "labels": ["f", "m"], "recodes": FLIPPED}]}
LEVELS = {"units": "units.csv", "levels": [{"name": n, "width": 1} for n in ("state", "county", "block")]}
TREES = {
    "cells at every level": {"all": {"detailed": "1"}},
    "totals, then cells": {
        "state": {"total": "1"},
        "county": {"total": "1"},
        "block": {"total": "1/3", "detailed": "2/3"},
    },
    "answers in another order": {"state": {"flipped": "1"}, "county": {"sex": "1"}, "block": {"detailed": "1"}},
    "finer on the way down": {"state": {"total": "1"}, "county": {"total": "1/2", "sex": "1/2"}, "block": {"sex": "1"}},
}


class Drawer:
    """The two sweeps over a tiny spine, in memory; the sweep up happens once."""

    def __init__(self, plan: Plan, spine: Spine, truth: NDArray[np.int64]) -> None:
        self.plan, self.spine, self.layers = plan, spine, tree_of(plan)
        self.weighed: dict[tuple[str, int], tuple[Family, Any]] = {}
        self.truth = truth
        below: dict[tuple[str, int], Any] = {}
        for level in reversed(spine.levels):
            sent = {}
            for parent, family in self._families(level):
                first = int(families(spine, level)[parent])
                mine = [below[level, first + k] for k in range(len(family.geocodes))] if below else None
                weighed = family.forward_pass(mine)
                self.weighed[level, parent] = family, weighed
                depth = spine.levels.index(level)
                if depth:
                    above = spine.levels[depth - 1]
                    sent[above, parent] = family.send_up(weighed, self.layers[above][-1])
            below = sent

    def _counts(self, level: str) -> NDArray[np.int64]:
        ranges = self.spine.leaf_ranges(level)
        return np.stack([self.truth[a:b].sum(axis=0) for a, b in pairwise(ranges)])

    def _families(self, level: str) -> Iterator[tuple[int, Family]]:
        offsets = families(self.spine, level)
        counts = self._counts(level)
        for parent in range(len(offsets) - 1):
            here = slice(int(offsets[parent]), int(offsets[parent + 1]))
            layers = self.layers[level]
            truth = tuple(layer.query.answer(counts[here]) for layer in layers)
            boxes = []
            for layer, true in zip(layers, truth, strict=True):
                fixed = any(i.level == level and i.query.name == layer.query.name for i in self.plan.invariants)
                box = Box(true, true) if fixed else Box.open(true.shape)
                for _ in (b for b in self.plan.bounds if (b.level, b.query.name) == (level, layer.query.name)):
                    box = Box(box.lower, np.full(true.shape, ROOM))
                boxes.append(box)
            yield (
                parent,
                Family(
                    layers=layers,
                    geocodes=tuple(self.spine.geocodes(level)[here].tolist()),
                    parent=self._parent(level, parent),
                    truth=truth,
                    boxes=tuple(boxes),
                    reach=30.0,
                    splits=self.layers.splits(self.spine),
                ),
            )

    def _parent(self, level: str, parent: int) -> str:
        depth = self.spine.levels.index(level)
        return str(self.spine.geocodes(self.spine.levels[depth - 1])[parent]) if depth else ""

    def draw(self, streams: Streams) -> NDArray[np.int64]:
        drawn_above: dict[int, NDArray[np.int64]] = {}
        for level in self.spine.levels:
            drawn = {}
            for parent in range(len(families(self.spine, level)) - 1):
                family, weighed = self.weighed[level, parent]
                if drawn_above:
                    coarsest = family.draw(weighed, drawn_above[parent], streams)
                else:
                    coarsest = family.draw_roots(weighed, streams)
                finest = family.refine(weighed, coarsest, streams)
                first = int(families(self.spine, level)[parent])
                drawn |= {first + k: row for k, row in enumerate(finest)}
            drawn_above = drawn
        return np.stack([drawn_above[k] for k in range(len(drawn_above))])


def law(plan: Plan, spine: Spine) -> dict[bytes, float]:
    """The conditioned law by its definition: every table that keeps the facts, weighed by the noise of all answers."""
    weights = {}
    for cells in product(range(TOTAL + 1), repeat=TRUTH.size):
        if sum(cells) != TRUTH.sum():
            continue
        table = np.array(cells).reshape(TRUTH.shape)
        if not keeps_the_facts(plan, spine, table):
            continue
        log = 0.0
        for measurement in plan.measurements:
            ranges = spine.leaf_ranges(measurement.level)
            for a, b in pairwise(ranges):
                noise = measurement.query.answer((table - TRUTH)[a:b].sum(axis=0))
                log += float(measurement.mechanism.log_pmf(noise).sum())
        weights[table.astype(np.int64).tobytes()] = np.exp(log)
    total = sum(weights.values())
    return {table: weight / total for table, weight in weights.items()}


def keeps_the_facts(plan: Plan, spine: Spine, table: NDArray[np.int64]) -> bool:
    def answers(fact: Any, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        ranges = pairwise(spine.leaf_ranges(fact.level))
        return np.concatenate([fact.query.answer(counts[a:b].sum(axis=0)) for a, b in ranges])

    return all(np.array_equal(answers(i, table), answers(i, TRUTH)) for i in plan.invariants) and all(
        (answers(b, table) <= ROOM).all() for b in plan.bounds
    )


def p_value(observed: dict[bytes, int], expected: dict[bytes, float], n: int) -> float:
    """Chi-square with rare tables pooled."""
    common = [t for t, p in expected.items() if n * p >= 5]
    pairs = [(observed.get(t, 0), n * expected[t]) for t in common]
    seen, meant = sum(o for o, _ in pairs), sum(e for _, e in pairs)
    if n - meant >= 1:
        pairs.append((n - seen, n - meant))
    return float(chi2.sf(sum((o - e) ** 2 / e for o, e in pairs), len(pairs) - 1))


def plan_of(
    country: Any, queries: dict[str, Any], budget: str = "4", framework: str = "zcdp", facts: str = "root"
) -> Plan:
    country.file("units.csv", UNITS)
    country.file("rooms.csv", "geocode,total\n" + "".join(f"{code},{ROOM}\n" for code in UNITS.split()[1:]))
    room = {"query": "total", "level": "block", "sense": "<=", "source": "rooms.csv"}
    level = "county" if facts == "middle" else "state"
    return country.plan(
        schema=SCHEMA,
        geography=LEVELS,
        privacy={"framework": framework, ("rho" if framework == "zcdp" else "epsilon"): budget},
        estimate={"method": "congenial"},
        strategy={"geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"}, "queries": queries},
        invariant=[{"query": "total", "level": level, "reason": "law"}],
        bound=[room] if facts == "bounded leaves" else [],
    )


def tables_seen(drawer: Drawer, name: str, runs: int) -> dict[bytes, int]:
    """How often each table is drawn, under one testing key a run."""
    keys = (RunKey.for_testing(f"{name} {run}") for run in range(runs))
    return Counter(drawer.draw(key.streams(b"test")).tobytes() for key in keys)


@pytest.mark.parametrize("framework", ["zcdp", pytest.param("pure", marks=pytest.mark.slow)])
@pytest.mark.parametrize("queries", TREES.values(), ids=TREES)
def test_draws_follow_the_conditioned_law_and_no_other(country: Any, queries: dict[str, Any], framework: str) -> None:
    plan = plan_of(country, queries, framework=framework)
    spine = spine_of(plan)
    n = 700
    seen = tables_seen(Drawer(plan, spine, TRUTH), "family", n)
    assert set(seen) <= set(law(plan, spine))  # every draw conforms
    assert p_value(seen, law(plan, spine), n) > 1e-6
    wrong = plan_of(country, queries, budget="2", framework=framework)
    assert p_value(seen, law(wrong, spine), n) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("facts", ["middle", "bounded leaves"])
@pytest.mark.parametrize("framework", ["zcdp", "pure"])
def test_draws_follow_the_law_given_facts_in_the_middle_and_below(country: Any, facts: str, framework: str) -> None:
    """Unequal branches (two blocks and one), unequal noise, and what is public is not at the root alone."""
    queries = {"all": {"total": "1"}, "block": {"detailed": "1"}}  # the blocks' totals are bounded and not measured
    plan = plan_of(country, queries, framework=framework, facts=facts)
    spine = spine_of(plan)
    n = 900
    seen = tables_seen(Drawer(plan, spine, TRUTH), "facts", n)
    right = law(plan, spine)
    assert set(seen) <= set(right)
    assert p_value(seen, right, n) > 1e-6
    without = law(plan_of(country, queries, framework=framework), spine)  # the law that forgets these facts
    forgotten = sum(p for table, p in without.items() if table not in right)
    assert forgotten > 0.02
    wrong = law(plan_of(country, queries, budget="1", framework=framework, facts=facts), spine)
    assert p_value(seen, wrong, n) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("facts", ["root", "middle", "bounded leaves"])
def test_the_pipeline_draws_what_the_families_draw(country: Any, facts: str, tmp_path: Path) -> None:
    """Beam adds nothing to the law: with one key its release is the table that the families above were tested by."""
    queries = {"all": {"total": "1"}, "block": {"detailed": "1"}}
    plan = plan_of(country, queries, facts=facts)
    codes = UNITS.split()[1:]
    rows = [(codes[b], "fm"[c]) for b, c in np.argwhere(TRUTH) for _ in range(TRUTH[b, c])]
    country.file("people.csv", "geocode,sex\n" + "".join(f"{code},{sex}\n" for code, sex in rows))
    release = das.run(plan, out=tmp_path / "out", testing_key="seven")
    shown = release.counts("block")
    found = np.zeros_like(TRUTH)
    for code, sex, count in shown[["geocode", "sex", "count"]].itertuples(index=False):
        found[codes.index(str(code)), "fm".index(str(sex))] += int(count)
    streams = RunKey.for_testing("seven").streams(plan.digest.encode())
    assert np.array_equal(found, Drawer(plan, spine_of(plan), TRUTH).draw(streams))


def test_a_draw_is_a_function_of_the_key(country: Any) -> None:
    plan = plan_of(country, TREES["totals, then cells"])
    drawer = Drawer(plan, spine_of(plan), TRUTH)
    again = Drawer(plan, spine_of(plan), TRUTH)
    key = RunKey.for_testing("one").streams(b"test")
    assert np.array_equal(drawer.draw(key), again.draw(key))
    assert any(
        not np.array_equal(drawer.draw(key), drawer.draw(RunKey.for_testing(f"other {k}").streams(b"test")))
        for k in range(5)
    )
