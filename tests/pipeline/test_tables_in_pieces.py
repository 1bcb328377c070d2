"""Tables that are too long to be held at once are written piece by piece, and hold the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import das
from das.release.table_tasks import TableTask, table_tasks
from das.schema.query import Query
from das.storage import shards
from das.storage.layout import ReleaseFolder
from pipelines.elements.context import WorkerContext
from pipelines.stages import publish
from pipelines.stages.publish import PublishTable

if TYPE_CHECKING:
    from conftest import World


@pytest.mark.usefixtures("unconfined")
def test_a_level_in_pieces(country: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "NUMBERS_PER_SHARD", 40)  # three units of 13 numbers
    monkeypatch.setattr(publish, "ROWS_AT_ONCE", 3)
    das.run(country.plan, out=tmp_path / "out", testing_key="country")
    ours, theirs = tmp_path / "out" / "release" / "tables", country.release / "tables"
    names = {path.name for path in theirs.glob("*.parquet")}
    assert {path.name for path in ours.glob("*.parquet")} == names
    for name in names:
        assert pd.read_parquet(ours / name).equals(pd.read_parquet(theirs / name))
        csv = Path(name).with_suffix(".csv")
        assert (ours / csv).read_bytes() == (theirs / csv).read_bytes()


def test_areas_from_pieces_of_the_leaves(town: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = ReleaseFolder(town.release)
    step = PublishTable(WorkerContext(town.plan, release.facts / "spine.parquet", tmp_path), release)
    whole = PublishTable._answers

    def in_three(self: Any, level: str, query: Query) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        ((_, answers),) = whole(self, level, query)
        for some in np.array_split(np.arange(len(answers)), 3):
            yield slice(some[0], some[-1] + 1), answers[some]

    tasks = [task for task in table_tasks(town.plan) if task.place in ("place", "district")]
    before = [list(step._pieces(task)) for task in tasks]
    monkeypatch.setattr(PublishTable, "_answers", in_three)
    assert [list(step._pieces(task)) for task in tasks] == before
    assert len(list(step._pieces(TableTask("block", "total")))) == 3
