"""Families of the tree, drawn without Beam, against every table of a world small enough to list."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from das.congenial.family import Box, Family
from das.congenial.layers import layers_of
from das.noise.stream import RunKey, Streams
from das.places import spine_of
from das.plan import Plan
from das.release.parts import families
from geography import Spine

TOTAL = 4
TRUTH = np.array([[2, 0], [0, 1], [1, 0]])  # blocks x cells
UNITS = "geocode\n011\n012\n021\n"
SCHEMA = {"attribute": [{"name": "sex", "labels": ["f", "m"]}]}
LEVELS = {"units": "units.csv", "levels": [{"name": n, "width": 1} for n in ("state", "county", "block")]}
TREES = {
    "cells at every level": {"all": {"detailed": "1"}},
    "totals, then cells": {
        "state": {"total": "1"},
        "county": {"total": "1"},
        "block": {"total": "1/3", "detailed": "2/3"},
    },
    "finer on the way down": {"state": {"total": "1"}, "county": {"total": "1/2", "sex": "1/2"}, "block": {"sex": "1"}},
}


class Drawer:
    """The two sweeps over a tiny spine, in memory; the sweep up happens once."""

    def __init__(self, plan: Plan, spine: Spine, truth: NDArray[np.int64]) -> None:
        self.plan, self.spine, self.layers = plan, spine, layers_of(plan)
        self.weighed: dict[tuple[str, int], tuple[Family, Any]] = {}
        self.truth = truth
        below: dict[tuple[str, int], Any] = {}
        for level in reversed(spine.levels):
            told = {}
            for parent, family in self._families(level):
                first = int(families(spine, level)[parent])
                mine = [below[level, first + k] for k in range(len(family.geocodes))] if below else None
                weighed = family.weigh(mine)
                self.weighed[level, parent] = family, weighed
                depth = spine.levels.index(level)
                if depth:
                    above = spine.levels[depth - 1]
                    told[above, parent] = family.tell(weighed, self.layers[above][-1])
            below = told

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
                boxes.append(Box(true, true) if fixed else Box.open(true.shape))
            yield (
                parent,
                Family(
                    layers=layers,
                    geocodes=tuple(self.spine.geocodes(level)[here].tolist()),
                    parent=f"{level} {parent}",
                    truth=truth,
                    boxes=tuple(boxes),
                    reach=30.0,
                    splits=self.layers.splits(self.spine),
                ),
            )

    def draw(self, streams: Streams) -> NDArray[np.int64]:
        handed: dict[int, NDArray[np.int64]] = {}
        for level in self.spine.levels:
            drawn = {}
            for parent in range(len(families(self.spine, level)) - 1):
                family, weighed = self.weighed[level, parent]
                if handed:
                    coarsest = family.draw(weighed, handed[parent], streams)
                else:
                    coarsest = family.draw_roots(weighed, streams)
                finest = family.refine(weighed, coarsest, streams)
                first = int(families(self.spine, level)[parent])
                drawn |= {first + k: row for k, row in enumerate(finest)}
            handed = drawn
        return np.stack([handed[k] for k in range(len(handed))])


def law(plan: Plan, spine: Spine) -> dict[bytes, float]:
    """The conditioned law by its definition: every table with the right total, weighed by the noise of all answers."""
    weights = {}
    for cells in product(range(TOTAL + 1), repeat=TRUTH.size):
        if sum(cells) != TRUTH.sum():
            continue
        table = np.array(cells).reshape(TRUTH.shape)
        log = 0.0
        for measurement in plan.measurements:
            ranges = spine.leaf_ranges(measurement.level)
            for a, b in pairwise(ranges):
                noise = measurement.query.answer((table - TRUTH)[a:b].sum(axis=0))
                log += float(measurement.mechanism.log_pmf(noise).sum())
        weights[table.astype(np.int64).tobytes()] = np.exp(log)
    total = sum(weights.values())
    return {table: weight / total for table, weight in weights.items()}


def p_value(observed: dict[bytes, int], expected: dict[bytes, float], n: int) -> float:
    """Chi-square with rare tables pooled."""
    common = [t for t, p in expected.items() if n * p >= 5]
    pairs = [(observed.get(t, 0), n * expected[t]) for t in common]
    seen, meant = sum(o for o, _ in pairs), sum(e for _, e in pairs)
    if n - meant >= 1:
        pairs.append((n - seen, n - meant))
    return float(chi2.sf(sum((o - e) ** 2 / e for o, e in pairs), len(pairs) - 1))


def plan_of(country: Any, queries: dict[str, Any], budget: str = "4", framework: str = "zcdp") -> Plan:
    country.file("units.csv", UNITS)
    return country.plan(
        schema=SCHEMA,
        geography=LEVELS,
        privacy={"framework": framework, ("rho" if framework == "zcdp" else "epsilon"): budget},
        estimate={"engine": "congenial"},
        strategy={"geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"}, "queries": queries},
        invariant=[{"query": "total", "level": "state", "reason": "law"}],
    )


@pytest.mark.parametrize("framework", ["zcdp", "pure"])
@pytest.mark.parametrize("queries", TREES.values(), ids=TREES)
def test_draws_follow_the_conditioned_law_and_no_other(country: Any, queries: dict[str, Any], framework: str) -> None:
    plan = plan_of(country, queries, framework=framework)
    spine = spine_of(plan)
    drawer, n = Drawer(plan, spine, TRUTH), 700
    seen: dict[bytes, int] = {}
    for run in range(n):
        table = drawer.draw(RunKey.for_testing(f"family {run}").streams(b"test")).tobytes()
        seen[table] = seen.get(table, 0) + 1
    assert set(seen) <= set(law(plan, spine))  # every draw conforms
    assert p_value(seen, law(plan, spine), n) > 1e-6
    wrong = plan_of(country, queries, budget="2", framework=framework)
    assert p_value(seen, law(wrong, spine), n) < 1e-9


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
