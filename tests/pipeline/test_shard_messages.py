"""Messages between shards arrive complete, once each, at the shard that needs them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from das.estimation.linear.blue import LinearEstimate, pool
from das.schema.counts import ProtectedCounts
from das.storage import shards
from das.storage.layout import ReleaseFolder
from das.storage.shards import families
from pipelines.elements.arrays import Arrays, ArraysCoder
from pipelines.elements.context import WorkerContext
from pipelines.elements.kept import recall, remember
from pipelines.elements.messages import received_from_above, received_from_below, send_down, send_up
from pipelines.stages.estimate import PoolShard

if TYPE_CHECKING:
    from conftest import World


@pytest.fixture
def work(country: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerContext:
    """The starter's plan with its levels cut into shards of one or two families."""
    monkeypatch.setattr(shards, "NUMBERS_PER_SHARD", 26)
    spine = tmp_path / "spine.parquet"  # shards are cached by the spine's file
    spine.write_bytes((country.release / "facts" / "spine.parquet").read_bytes())
    return WorkerContext(country.plan, spine, tmp_path)


def some_knowledge(units: int, cells: int) -> LinearEstimate:
    rng = np.random.Generator(np.random.PCG64(units))
    return LinearEstimate(rng.normal(size=(units, cells)), [rng.normal(size=(units, 2, 2)), np.ones((units, 1, 1))])


def test_up(work: WorkerContext) -> None:
    for level in work.plan.levels:
        units = work.spine.size(level)
        known = some_knowledge(units, 8)
        messages = list(send_up(work, level, np.arange(units), known))
        assert [index for index, _ in messages] == list(range(len(work.shards(level))))
        for index, message in messages:
            shard = work.shards(level)[index]
            found = received_from_below([message])
            assert sorted(found) == list(range(shard.start, shard.stop))
            for unit, one in found.items():
                assert (one.mean == known.unit(unit).mean).all()
                pairs = zip(one.covariance, known.unit(unit).covariance, strict=True)
                assert all((ours == theirs).all() for ours, theirs in pairs)


@pytest.mark.parametrize("with_best", [True, False])
def test_down(work: WorkerContext, with_best: bool) -> None:
    assert any(len(work.shards(level)) > 1 for level in work.plan.levels[1:])
    for above, level in pairwise(work.plan.levels):
        units = work.spine.size(above)
        counts = ProtectedCounts(np.repeat(np.arange(units), 2)[1:], np.arange(2 * units - 1), np.arange(1, 2 * units))
        best = some_knowledge(units, 8) if with_best else None
        offsets, arrived = families(work.spine, level), set()
        for index, message in send_down(work, level, np.arange(units), counts, best):
            shard = work.shards(level)[index]
            for unit, (mine, known) in received_from_above([message]).items():
                assert mine is not None
                assert shard.start <= offsets[unit] < offsets[unit + 1] <= shard.stop
                assert (mine[0] == counts.cell[counts.unit == unit]).all()
                assert (mine[1] == counts.count[counts.unit == unit]).all()
                assert (known is None) == (best is None)
                if known is not None and best is not None:
                    assert (known.mean == best.unit(unit).mean).all()
                arrived.add(unit)
        assert arrived == set(range(units))


def test_the_sum_of_leaves_is_learnt_from_their_sum(country: World, town: World, tmp_path: Path) -> None:
    for world in (country, town):
        release = ReleaseFolder(world.release)
        work = WorkerContext(world.plan, release.facts / "spine.parquet", tmp_path)
        leaf = world.plan.levels[-1]
        for shard in work.shards(leaf):
            for _, _, family in PoolShard(work, release, leaf).families(shard, {}):
                ours, plain = family.pooled(), pool(family.linear_estimate())
                assert np.allclose(ours.mean, plain.mean, rtol=1e-9, atol=1e-9)
                for mine, theirs in zip(ours.covariance, plain.covariance, strict=True):
                    assert np.allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def test_what_lies_in_a_file_travels_as_its_name(tmp_path: Path) -> None:
    """A runner that holds elements between steps holds names, and whoever looks at them reads the file."""
    large = Arrays({"mean": np.arange(10_000.0), "unit": np.arange(3)})
    kept = remember(tmp_path, "pool-block-0", [(1, large), (2, Arrays({}))])
    coder = ArraysCoder()
    encoded = [coder.encode(arrays) for _, arrays in kept]
    assert max(map(len, encoded)) < 300 < len(coder.encode(large))
    again = recall(tmp_path, "pool-block-0")
    assert again is not None
    for found in (kept, again, [(key, coder.decode(data)) for (key, _), data in zip(kept, encoded, strict=True)]):
        assert [key for key, _ in found] == [1, 2]
        assert found[0][1].to_bytes() == large.to_bytes()
        assert list(found[1][1]) == []


def test_messages_that_travel_lie_in_the_folder_of_the_stage(work: WorkerContext) -> None:
    top, level = work.plan.levels[:2]
    units = np.arange(work.spine.size(top))
    for _, message in send_down(work, level, units, ProtectedCounts.nobody(), some_knowledge(len(units), 8)):
        assert bytes(work.partial) in ArraysCoder().encode(message)
        assert ArraysCoder().decode(ArraysCoder().encode(message)).to_bytes() == message.to_bytes()
