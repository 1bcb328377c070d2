"""The noise that a release's files really carry: centred, as wide as the plan says, and not 30 % off."""

from __future__ import annotations

from collections import defaultdict
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import das
from das.noise.measure import noisy_answers
from das.noise.stream import RunKey
from das.runner import find_runner
from das.storage.key_file import write_key
from pipelines.elements.context import WorkerContext
from pipelines.stages.measure import MeasureShard
from pipelines.stages.tabulate import read_histogram

if TYPE_CHECKING:
    from conftest import World

KEYS = {"example": 250, "demo": 15}
LIMIT = 6.5  # standard errors: a true plan fails once in 10^10 runs of one test

Noise = dict[tuple[str, str], NDArray[np.int64]]  # (level, query) -> keys x numbers


@pytest.fixture(scope="module", params=["country", pytest.param("town", marks=pytest.mark.slow)])
def drawn(request: pytest.FixtureRequest) -> tuple[World, Noise]:
    """Measure the same histograms under many keys, as the pipeline's step does; subtract the dense truth."""
    world: World = request.getfixturevalue(request.param)
    plan, work = world.plan, WorkerContext(world.plan, world.release / "facts" / "spine.parquet", world.out)
    truth = {
        (m.level, m.query.name): world.answer(world.truth(m.level), world.axes(m.query.name)) for m in plan.measurements
    }
    parts = [(part, read_histogram(part, world.out / "confidential" / "histograms")) for part in work.all_shards()]
    noise = defaultdict(list)
    for number in range(KEYS[plan.name]):
        streams = RunKey.for_testing(f"key {number}").streams(plan.digest.encode())
        for part, histogram in parts:
            values = noisy_answers(plan.at(part.level), work.spine.geocodes(part.level), histogram, streams)
            for m in plan.at(part.level):
                answers, values = np.split(values, [m.query.size], axis=1)
                noise[m.level, m.query.name].append((answers - truth[m.level, m.query.name]).reshape(-1))
    return world, {name: np.array(values) for name, values in noise.items()}


def errors_of(scaled: NDArray[np.float64]) -> tuple[float, float]:
    """Of numbers that should have variance 1: how many standard errors the mean is from 0, the mean square from 1.

    The fourth moment is taken as 6, that of Laplace noise; the Gaussian's is 3, so for it the limit is the wider.
    """
    return float(scaled.mean()) * sqrt(scaled.size), float((scaled**2).mean() - 1) * sqrt(scaled.size / 5)


def test_each_query_of_each_level_is_unbiased_with_the_planned_variance(drawn: tuple[World, Noise]) -> None:
    world, noise = drawn
    for measurement in world.plan.measurements:
        scaled = noise[measurement.level, measurement.query.name] / measurement.std_dev
        mean, spread = errors_of(scaled)
        assert abs(mean) < LIMIT, (measurement.level, measurement.query.name)
        assert abs(spread) < LIMIT, (measurement.level, measurement.query.name)


@pytest.mark.parametrize("factor", [1, 0.7, 1.3])
def test_of_each_level_a_variance_30_percent_off_is_seen(drawn: tuple[World, Noise], factor: float) -> None:
    world, noise = drawn
    for level in world.plan.levels:
        planned = [noise[level, m.query.name] / sqrt(factor * m.mechanism.variance()) for m in world.plan.at(level)]
        _, spread = errors_of(np.concatenate(planned, axis=1))
        assert (abs(spread) < LIMIT) == (factor == 1)


def test_draws_of_different_places_queries_and_keys_are_unrelated(drawn: tuple[World, Noise]) -> None:
    world, noise = drawn
    scaled = np.concatenate(
        [noise[m.level, m.query.name] / m.std_dev for m in world.plan.measurements if m.query.size < 100], axis=1
    )
    for shift in (1, 2, 3):
        across_places = (scaled * np.roll(scaled, shift, axis=1)).mean()
        across_keys = (scaled * np.roll(scaled, shift, axis=0)).mean()
        assert abs(across_places) * sqrt(scaled.size) < LIMIT
        assert abs(across_keys) * sqrt(scaled.size) < LIMIT


def test_the_release_holds_the_noise_of_its_key(country: World, tmp_path: Path) -> None:
    """So that what is shown above of the step holds of the release."""
    key = tmp_path / "run.key"
    write_key(key, RunKey.for_testing("country"))
    work = WorkerContext(country.plan, country.release / "facts" / "spine.parquet", tmp_path)
    step = MeasureShard(work, country.out / "confidential" / "histograms", key)
    step.setup()
    for part in work.all_shards():
        list(step.process(part))
        released = country.release / "measurements" / f"{part.level}.parquet"
        assert part.path(tmp_path).read_bytes() == released.read_bytes()


def test_two_real_runs_in_one_process_and_one_folder_draw_apart(starter: Path, tmp_path: Path) -> None:
    """The key of the first must not survive it in memory: equal noise would show the difference of two inputs."""
    values = []
    for number in range(2):
        find_runner().run(das.load(starter), tmp_path / "out", upto="measure")
        table = pq.read_table(tmp_path / "out" / "release" / "measurements" / "village.parquet")
        values.append(np.asarray(table["value"].combine_chunks().flatten()))
        (tmp_path / "out").rename(tmp_path / f"moved-{number}")
        (tmp_path / "input" / "ledger.sqlite").unlink()
        for path in (tmp_path / "input").glob(".das-witness-*"):
            path.unlink()  # without it, a deleted ledger would be missed
    assert (values[0] != values[1]).mean() > 0.5
