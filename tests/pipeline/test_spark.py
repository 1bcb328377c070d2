"""A real Spark cluster on loopback: the same bytes as in memory."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import das
from pipelines.runners.clusters import SPARK

if TYPE_CHECKING:
    from conftest import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_the_cluster_runs_the_beam_that_is_installed(spark: None) -> None:
    assert SPARK.beam_that_runs() == version("apache-beam")


def test_the_starter_gives_the_same_bytes_and_leaves_nothing_behind(
    spark: None,
    country: World,
    tmp_path: Path,
    tree: Callable[[Path], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # which is not where the workers are
    das.run(country.plan, out="out", testing_key="country", options=["--runner=spark"])
    assert tree(tmp_path / "out" / "release") == tree(country.release)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in country.out.iterdir()}
