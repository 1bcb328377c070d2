"""A real state as aggregate counts: 25,181 blocks, nested totals in wide columns, production shares of the levels."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest

import das
from das.bench import real_geography
from das.evaluation.evaluate import evaluate
from das.release.manifest import verify_release

RACES = ("hisp", "white", "black", "aian", "asian", "nhpi", "other", "two")


@pytest.fixture
def config(tmp_path: Path, rhode_island: Path) -> Path:
    path = tmp_path / "ri.toml"
    path.write_text(config_text(rhode_island))
    return path


def config_text(data: Path) -> str:
    return real_geography.config_text(str(data), RACES, name="rhode-island", tables=("total", "race"))


@pytest.mark.flink
@pytest.mark.timeout(900)
def test_three_runners_give_the_same_bytes(
    flink: None, config: Path, tmp_path: Path, tree: Callable[[Path], dict[str, str]]
) -> None:
    for runner in ("in-memory", "multi-process", "flink"):
        das.run(das.load(config), out=tmp_path / runner, testing_key="ri", options=[f"--runner={runner}"])
    expected = tree(tmp_path / "in-memory" / "release")
    assert tree(tmp_path / "multi-process" / "release") == expected
    assert tree(tmp_path / "flink" / "release") == expected


@pytest.mark.slow
def test_rhode_island_runs_through_and_reports(config: Path, rhode_island: Path, tmp_path: Path) -> None:
    release = das.run(das.load(config), out=tmp_path / "out")

    truth = pd.read_csv(rhode_island, dtype={"GEOID": str}).set_index("GEOID")
    assert verify_release(release.folder) == []
    assert release.table("state", "total").loc["44", "total"] == truth["pop"].sum() == 1_052_567
    blocks = release.table("block", "total")["total"]
    assert list(blocks.index) == sorted(truth.index)
    # Tract totals are within a few of the 2.1 persons that PEERS measures for one level's information alone.
    tracts = release.table("tract", "total")["total"]
    error = (tracts - truth["pop"].groupby(truth.index.str[:11]).sum()).abs()
    assert 0.5 < error.mean() < 6
    assert Fraction(release.statement["nominal"]["rho"]) == Fraction(542, 339) ** 2
    assert release.statement["ledger_agrees"]
    assert not release.statement["seeded"]
    # The geography comes from the same file as the counts, so its hash would be a hash of the data.
    assert release.manifest["public_inputs"] == []


@pytest.mark.slow
def test_rhode_island_drawn_to_conform(rhode_island: Path, tmp_path: Path) -> None:
    """The congenial method: 16 cells at every level, the state's total exact."""
    text = config_text(rhode_island)
    start, end = text.index("[strategy.queries.all]"), text.index("[[invariant]]")
    text = text[:start] + '[strategy.queries.all]\ndetailed = "1"\n\n' + text[end:]
    (tmp_path / "ri.toml").write_text(text + '\n[estimate]\nmethod = "congenial"\n')
    release = das.run(das.load(tmp_path / "ri.toml"), out=tmp_path / "out", testing_key="ri")
    assert verify_release(release.folder) == []
    assert int(release.counts("state")["count"].sum()) == 1_052_567
    rows = {(row["level"], row["query"]): row for row in evaluate(tmp_path / "out")["levels"]}
    # The leaves' noise has a standard deviation of 3.1; what conforms is closer to the truth.
    assert rows["block", "detailed"]["mae"] < 1.0
    assert rows["tract", "detailed"]["mae"] < 3.0
