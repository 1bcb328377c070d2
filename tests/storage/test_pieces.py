"""Measurement of a shard in pieces: sparse truth, bounded memory, the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from das.noise.measure import noisy_answers
from das.noise.stream import RunKey
from das.release.measurements import read_measurements, table_of_measurements
from das.schema.counts import TrueCounts
from das.storage.shards import Shard, parquet_of_row_groups

Country = Any


@pytest.mark.parametrize("per_piece", [1, 2, 100])
def test_measuring_in_pieces_gives_the_same_numbers(
    country: Country, per_piece: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = country.plan()
    geocodes = country.spine().geocodes("block")
    rng = np.random.default_rng(0)
    dense = rng.poisson(0.8, (len(geocodes), plan.schema.size)) * plan.schema.possible
    unit, cell = np.nonzero(dense)
    truth = TrueCounts(unit.astype(np.int64), cell.astype(np.int64), dense[unit, cell])
    shard, streams = Shard("block", 0, 1, 7, 7 + len(geocodes)), RunKey(bytes(32)).streams(b"plan")
    measured = plan.at("block")
    noise = noisy_answers(measured, geocodes, TrueCounts.nobody(), streams)
    whole = noisy_answers(measured, geocodes, truth, streams)
    exact = np.concatenate([m.query.answer(dense) for m in plan.at("block")], axis=1)
    assert np.array_equal(whole - noise, exact), "sparse truth, dense answers"
    numbers = whole.shape[1]
    monkeypatch.setattr("das.storage.shards.NUMBERS_PER_SHARD", per_piece * numbers)
    pieces = list(shard.pieces(numbers))
    assert max(stop - start for start, stop in pieces) <= per_piece
    tables = (
        table_of_measurements(plan, "block", here, noisy_answers(measured, here, some, streams))
        for start, stop in pieces
        for here, some in [(geocodes[start - 7 : stop - 7], truth.within(start - 7, stop - 7))]
    )
    path = tmp_path / "block.parquet"
    path.write_bytes(parquet_of_row_groups(tables))
    assert pq.ParquetFile(path).num_row_groups == len(pieces)
    read = read_measurements(plan, "block", path)
    assert np.array_equal(read, whole)
    assert read.dtype.itemsize == 1
