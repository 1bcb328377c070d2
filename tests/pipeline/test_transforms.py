"""The public transforms give, element by element, what ``das run`` gives with the same key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that

import das
from das.errors import UsageError
from das.facts.file import read_facts
from das.noise.stream import RunKey
from das.plan.plan import Plan
from das.release.estimates import table_of_estimates
from das.release.measurements import read_measurements
from das.schema.counts import ProtectedCounts, TrueCounts
from das.storage.key_file import write_key
from das.storage.layout import Layout
from geography import Spine
from pipelines.elements.context import WorkerContext
from pipelines.elements.linear_estimates import estimates_of_all
from pipelines.stages.tabulate import read_histogram
from pipelines.transforms import (
    Answers,
    CongenialDraw,
    CountGeounits,
    Estimated,
    EstimateFamilies,
    Geounit,
    MeasureGeounits,
    PoolEstimates,
    PublicFacts,
    true_counts,
)

if TYPE_CHECKING:
    from conftest import World

Found = dict[Geounit, Any]
MIXED = 'total = "1/4"\n"sex * grown" = "1/4"\ndetailed = "1/2"\n'
"""What the starter measures, which is no tree of counts down the spine."""


def a_pipeline() -> test_pipeline.TestPipeline:
    return test_pipeline.TestPipeline(runner=FnApiRunner())


def is_same(expected: Found, plain: Callable[[Any], Any]) -> Callable[[list[tuple[Geounit, Any]]], None]:
    """Every geounit once, with the same numbers."""

    def check(found: list[tuple[Geounit, Any]]) -> None:
        assert len(found) == len(expected), "each geounit once"
        assert {geounit: plain(value) for geounit, value in found} == {g: plain(v) for g, v in expected.items()}

    return check


def numbers(counts: TrueCounts | ProtectedCounts) -> tuple[list[int], list[int]]:
    return counts.cell.tolist(), counts.count.tolist()


class Released:
    """What a run read and wrote, geounit by geounit."""

    def __init__(self, plan: Plan, out: Path) -> None:
        self.plan, self.layout = plan, Layout(out)
        self.work = WorkerContext(plan, self.layout.release.facts / "spine.parquet", out)

    @property
    def spine(self) -> Spine:
        return self.work.spine

    def geounits(self, level: str) -> list[Geounit]:
        paths: list[tuple[str, ...]] = [()]
        for name in self.spine.levels:
            parents = self.spine.parent(name).clip(0).tolist()
            paths = [(*paths[up], code) for up, code in zip(parents, self.spine.geocodes(name).tolist(), strict=True)]
            if name == level:
                break
        return [Geounit(path) for path in paths]

    def rows(self) -> Iterator[tuple[Geounit, Any, int]]:
        """Each geounit with its shard and its row there."""
        for level in self.plan.levels:
            geounits = self.geounits(level)
            for shard in self.work.shards(level):
                yield from ((geounits[at], shard, at - shard.start) for at in range(shard.start, shard.stop))

    def truth(self) -> Found:
        found = {}
        for geounit, shard, row in self.rows():
            mine = read_histogram(shard, self.layout.confidential.histograms).within(shard.start, shard.stop)
            mine = mine.within(row, row + 1)
            found[geounit] = true_counts(mine.cell, mine.count)
        return found

    def measured(self) -> Found:
        folder = self.layout.release.measurements
        return {
            geounit: Answers(read_measurements(self.plan, shard.level, shard.path(folder))[row].astype(np.int64))
            for geounit, shard, row in self.rows()
        }

    def facts(self) -> Found:
        folder, found = self.layout.release.facts, {}
        for geounit, shard, row in self.rows():
            if shard.path(folder).exists():
                facts = read_facts(self.plan, shard.path(folder))
                found[geounit] = PublicFacts({f"{f.sign} {f.query.name}": f.values[row] for f in facts})
        return found

    def counts(self) -> dict[Geounit, dict[tuple[str, ...], int]]:
        """Published counts by labels, as the files state them."""
        out: dict[Geounit, dict[tuple[str, ...], int]] = {}
        for level in self.plan.levels:
            table = pd.concat(
                pd.read_parquet(s.path(self.layout.release.path / "counts")) for s in self.work.shards(level)
            )
            of = {code: rows for code, rows in table.groupby("geocode")}
            for geounit in self.geounits(level):
                rows = of.get(geounit.geocode)
                some = [] if rows is None else rows[[*self.plan.schema.names, "count"]].itertuples(index=False)
                out[geounit] = {tuple(row[:-1]): row[-1] for row in some}
        return out

    def estimates(self) -> dict[str, pa.Table]:
        folder = self.layout.release.path / "estimates"
        return {
            level: pa.concat_tables(pq.read_table(shard.path(folder)) for shard in self.work.shards(level))
            for level in self.plan.levels
        }

    def by_labels(self, counts: ProtectedCounts) -> dict[tuple[str, ...], int]:
        labels = [attribute.labels for attribute in self.plan.schema.attributes]
        places = np.unravel_index(counts.cell, [len(each) for each in labels])
        named = [tuple(labels[i][at] for i, at in enumerate(place)) for place in zip(*places, strict=True)]
        return dict(zip(named, counts.count.tolist(), strict=True))


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "run.key"
    write_key(path, RunKey.for_testing("country"))
    return path


def test_measured_are_the_numbers_of_the_run(country: World, key: Path) -> None:
    run = Released(country.plan, country.out)
    truth = run.truth()
    leaves = [element for element in truth.items() if element[0].depth == len(run.plan.levels)]
    half = [(unit, true_counts([], [])) for unit, _ in leaves]  # a second element of each leaf, which adds nothing
    measure = MeasureGeounits(run.plan, key)
    assert measure.cost == run.plan.budget
    with a_pipeline() as pipeline:
        counts = pipeline | beam.Create([*leaves, *half]) | CountGeounits(run.plan, TrueCounts)
        assert_that(counts, is_same(truth, numbers), label="counts")
        assert_that(counts | measure, is_same(run.measured(), lambda a: a.values.tolist()), label="measured")


def estimated(run: Released, plan: Plan, check: Callable[[list[tuple[Geounit, Estimated]]], None]) -> None:
    with a_pipeline() as pipeline:
        inputs = {
            "measured": pipeline | "measured" >> beam.Create(run.measured().items()),
            "facts": pipeline | "facts" >> beam.Create(run.facts().items()),
        }
        assert_that(inputs | EstimateFamilies(plan), check)


@pytest.mark.parametrize("name", ["country", pytest.param("town", marks=pytest.mark.slow)])
def test_estimated_are_the_counts_of_the_run(name: str, request: pytest.FixtureRequest) -> None:
    """Both worlds: one with a branch that skips a level, one with bounds and a structural zero."""
    world: World = request.getfixturevalue(name)
    run = Released(world.plan, world.out)
    assert world.plan.settings.estimate.information == "full"

    def check(found: list[tuple[Geounit, Estimated]]) -> None:
        is_same(run.counts(), lambda value: value if isinstance(value, dict) else run.by_labels(value.counts))(found)
        published, named = run.estimates(), dict(found)
        for level in run.plan.levels:
            geounits = run.geounits(level)
            linear = estimates_of_all([named[geounit].linear for geounit in geounits])
            geocodes = np.array([geounit.geocode for geounit in geounits])
            table = table_of_estimates(run.plan, run.work.basis, level, geocodes, linear)
            for name in ("estimate", "std_dev"):
                ours, theirs = (np.concatenate(t[name].to_numpy()) for t in (table, published[level]))
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-4)

    estimated(run, world.plan, check)


def test_a_level_at_a_time_and_without_facts(country: World) -> None:
    run = Released(country.plan, country.out)
    plan = country.plan.with_information("level")
    sums: dict[Geounit, int] = {}

    def check(found: list[tuple[Geounit, Estimated]]) -> None:
        assert all(value.linear is None for _, value in found)
        for geounit, value in found:
            sums[geounit.parent] = sums.get(geounit.parent, 0) + int(value.counts.count.sum())
        for geounit, value in found:
            if geounit.depth < len(plan.levels):
                assert sums[geounit] == value.counts.count.sum()

    with a_pipeline() as pipeline:
        measured = pipeline | beam.Create(run.measured().items())
        assert_that({"measured": measured} | EstimateFamilies(plan), check)


def test_pooled_estimates_are_sums_of_weighted_least_squares(country: World) -> None:
    """Of the parents of leaves, of which nothing is public here: solved leaf by leaf, densely, and added up."""
    run = Released(country.plan, country.out)
    measurements = run.plan.at(run.plan.levels[-1])
    weight = np.concatenate([np.full(m.query.size, m.mechanism.variance() ** -0.5) for m in measurements])
    answers = np.concatenate([m.query.answer(np.eye(run.plan.schema.size)) for m in measurements], axis=1).T
    expected: dict[Geounit, Any] = {}
    for leaf in run.geounits(run.plan.levels[-1]):
        noisy = run.measured()[leaf].values
        cells = np.linalg.lstsq(weight[:, None] * answers, weight * noisy, rcond=None)[0]
        expected[leaf.parent] = expected.get(leaf.parent, 0) + cells

    def check(found: list[tuple[Geounit, Any]]) -> None:
        above = [geounit for level in run.plan.levels[:-1] for geounit in run.geounits(level)]
        assert sorted(geounit for geounit, _ in found) == sorted(above)
        named = dict(found)
        for geounit, cells in expected.items():
            np.testing.assert_allclose(run.work.basis.to_cells(named[geounit].mean)[0], cells, atol=1e-6)

    with a_pipeline() as pipeline:
        measured = pipeline | beam.Create(run.measured().items())
        assert_that({"measured": measured} | PoolEstimates(run.plan), check)


@pytest.mark.slow
def test_a_draw_is_that_of_the_run(tmp_path: Path, starter: Path) -> None:
    text = starter.read_text()
    assert MIXED in text
    starter.write_text(text.replace(MIXED, 'detailed = "1"\n') + '\n[estimate]\nmethod = "congenial"\n')
    plan = das.load(starter)
    das.run(plan, out=tmp_path / "out", testing_key="draw")
    run, path = Released(plan, tmp_path / "out"), tmp_path / "run.key"
    write_key(path, RunKey.for_testing("draw"))
    sizes = {level: run.spine.size(level) for level in plan.levels}
    with a_pipeline() as pipeline:
        inputs = {
            "counts": pipeline | "counts" >> beam.Create(run.truth().items()),
            "facts": pipeline | "facts" >> beam.Create(run.facts().items()),
        }
        drawn = inputs | CongenialDraw(plan, path, sizes, reach=80.0)
        assert_that(drawn, is_same(run.counts(), lambda v: v if isinstance(v, dict) else run.by_labels(v)))
    with pytest.raises(UsageError, match="number of geounits"):
        CongenialDraw(plan, path, {})


def test_what_does_not_fit_is_named(country: World, key: Path) -> None:
    run = Released(country.plan, country.out)
    measured = run.measured()
    (first, answers), *others = measured.items()
    cases: dict[str, list[tuple[Geounit, Any]]] = {
        "two elements": [*measured.items(), (first, answers)],
        "not those of the plan": [(first, Answers(answers.values[:-1])), *others],
        "not the same in": [*others],
    }
    for message, elements in cases.items():
        with pytest.raises(Exception, match=message), a_pipeline() as pipeline:
            _ = {"measured": pipeline | beam.Create(elements)} | EstimateFamilies(run.plan)
    deep = Geounit(("1",) * (len(run.plan.levels) + 1))
    with pytest.raises(Exception, match="the plan"), a_pipeline() as pipeline:
        _ = pipeline | beam.Create([(deep, true_counts([], []))]) | MeasureGeounits(run.plan, key)
    with pytest.raises(UsageError, match="ascending"):
        true_counts([1, 1], [1, 2])
    with pytest.raises(UsageError, match="named"), a_pipeline() as pipeline:
        _ = {"counts": pipeline | beam.Create([1])} | EstimateFamilies(run.plan)


def test_elements_travel_as_raw_bytes() -> None:
    registry = beam.coders.registry
    counts = true_counts([0, 7], [3, 1])
    for value, plain in (
        (Geounit(("1", "1é")), lambda g: g),
        (Geounit(()), lambda g: g),
        (counts, numbers),
        (Answers(np.array([-3, 5])), lambda a: a.values.tolist()),
        (PublicFacts({"= total": np.array([4])}), lambda f: {k: v.tolist() for k, v in f.values.items()}),
    ):
        coder = registry.get_coder(type(value))
        assert coder.is_deterministic()
        assert plain(coder.decode(coder.encode(value))) == plain(value)
        assert "3" not in repr(counts).rpartition(" at ")[0], "a text shows no count"
    assert replace(Answers(np.array([1])), values=np.array([2])).values.tolist() == [2]
