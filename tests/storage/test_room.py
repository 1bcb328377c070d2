"""A disk that will not suffice is said before anything is charged or drawn."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path

import pytest

import das
from das.demo.starter import write_starter
from das.errors import UsageError
from das.plan import presets
from das.plan.load import load
from das.plan.plan import numbers_per_unit
from das.storage import room

Usage = namedtuple("Usage", ["total", "used", "free"])


class Sizes:
    def size(self, level: str) -> int:
        return {"state": 1, "county": 3, "tract": 65, "block_group": 194, "block": 6000}[level]


def test_the_forecast_is_what_a_measured_run_wrote() -> None:
    """`das bench state --blocks 6000 --json` wrote 71.36 MB of release (disk_gb 0.0714)."""
    plan = load(presets.folder() / "demo.toml")
    assert room.bytes_needed(plan, Sizes()) == pytest.approx(71.36e6, rel=0.02)
    numbers = sum(Sizes().size(level) * numbers_per_unit(plan.at(level)) for level in plan.levels)
    assert room.bytes_needed(plan.with_information("level"), Sizes()) == pytest.approx(1.7 * numbers)


def test_a_run_that_will_not_fit_is_refused_and_nothing_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_starter(tmp_path / "input")
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 100))
    with pytest.raises(
        UsageError, match=r"release: has room for 1e-07 GB, and the release will need about .*free space"
    ):
        das.run(load(config), out=tmp_path / "out", testing_key="room")
    assert not (tmp_path / "input" / "ledger.sqlite").exists()
    assert not (tmp_path / "out" / "release" / "measurements").exists()


def test_what_is_there_already_counts_as_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = load(presets.folder() / "demo.toml")
    needed = int(room.bytes_needed(plan, Sizes())) + 1
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _: Usage(0, 0, needed - 5000))
    with pytest.raises(UsageError, match="has room for"):
        room.require_room(plan, Sizes(), tmp_path / "release")
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "shard").write_bytes(bytes(5000))
    room.require_room(plan, Sizes(), tmp_path / "release")
