"""The accuracy that is promised, on real counts: all levels against one alone, intervals, a peer's errors."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import das
from das.bench.real_geography import config_text, groups_of, read_blocks
from das.evaluation.evaluate import evaluate
from das.evaluation.simulate import compare

pytestmark = pytest.mark.slow

SMALL_COUNTIES = ("44001", "44005")
"""The two smallest of five: the same families as in the whole state, in a sixth of the time."""

SIGMA2 = {"state": "1.0853", "county": "3.4963", "tract": "2.2749", "block_group": "1.2443", "block": "9.4719"}
CENSUSDP = {
    "tract": {"total": 4.85, "race": 1.52, "detailed": 1.02},
    "block_group": {"total": 3.62, "race": 1.02, "detailed": 0.66},
    "block": {"total": 4.91, "race": 0.89, "detailed": 0.53},
}
"""CensusDP with HiGHS on the same counts, one detailed query of these variances a node: measured once, whole run."""


def write_config(folder: Path, data: Path, *, sigma2: dict[str, str] | None = None) -> Path:
    """Write the config of Rhode Island; with ``sigma2``, one detailed query with that parameter at each level."""
    text = config_text(str(data), groups_of(read_blocks(data)), name="rhode-island", tables=("total", "race"))
    if sigma2:
        # One record that moves changes two cells by one: rho = 2 / (2 sigma2) at each level.
        rho = {level: 1 / Fraction(value) for level, value in sigma2.items()}
        total = sum(rho.values())
        shares = "".join(f'{level} = "{part / total}"\n' for level, part in rho.items())
        before, _, rest = text.partition("[strategy.geolevels]")
        after = rest[rest.index("[[invariant]]") :]
        text = f'{before}[strategy.geolevels]\n{shares}\n[strategy.queries.all]\ndetailed = "1"\n\n{after}'
        text = text.replace('rho = "293764/114921"', f'rho = "{total}"')
    path = folder / "rhode-island.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def comparison(rhode_island: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Four runs of two counties, with production's shares of the levels."""
    folder = tmp_path_factory.mktemp("counties")
    blocks = pd.read_csv(rhode_island, dtype={"GEOID": str})
    small = folder / "blocks.csv"
    blocks[blocks["GEOID"].str[:5].isin(SMALL_COUNTIES)].to_csv(small, index=False)
    plan = das.load(write_config(folder, small))
    plans = {kind: plan.with_information(kind) for kind in ("level", "full")}
    return compare(plans, 4, workdir=folder / "work")


def changes(comparison: dict[str, Any]) -> Iterator[tuple[str, str, float, float]]:
    for row in comparison["changes"]:
        if row["mae"] is not None:  # an invariant has no error
            yield row["level"], row["query"], row["mae"], row["mae_se"]


def test_full_information_is_better_at_tract(comparison: dict[str, Any]) -> None:
    """The whole state over twenty runs gains 20 % for each; here there are 40 tracts and four runs."""
    gains = {query: mae for level, query, mae, _ in changes(comparison) if level == "tract"}
    assert set(gains) == {"total", "votingage", "race", "detailed"}
    assert gains["detailed"] < -12
    assert gains["race"] < -12
    assert gains["total"] < -5


def test_full_information_is_nowhere_worse_beyond_noise(comparison: dict[str, Any]) -> None:
    for level, query, mae, error in changes(comparison):
        if level in ("tract", "block_group", "block"):  # state and county are a handful of numbers
            assert mae < max(4 * error, 0.5), (level, query)


def test_intervals_cover_what_they_claim(comparison: dict[str, Any]) -> None:
    """As many standard errors as a sound interval never needs, of a binomial whose answers hang together in eights."""
    for row in comparison["plans"]["full"]["levels"]:
        if row["intervals"]:
            slack = 5 * (0.95 * 0.05 / (row["intervals"] * 4 / 8)) ** 0.5
            assert abs(row["coverage"] - 0.95) < 0.01 + slack, (row["level"], row["query"])
    # The test has power: at block level the slack is less than half a percent.
    assert max(row["intervals"] for row in comparison["plans"]["full"]["levels"]) > 20_000
    assert "coverage" not in comparison["plans"]["level"]["levels"][0]


def test_one_detailed_query_a_node_beats_censusdp(rhode_island: Path, tmp_path: Path) -> None:
    """Equal or lower error at every level; the CPU time is printed by ``time -p das run`` and not tested."""
    plan = das.load(write_config(tmp_path, rhode_island, sigma2=SIGMA2))
    das.run(plan, out=tmp_path / "out", testing_key="censusdp")
    rows = {(row["level"], row["query"]): row for row in evaluate(tmp_path / "out")["levels"]}
    for level, bars in CENSUSDP.items():
        for query, bar in bars.items():
            assert rows[level, query]["mae"] <= bar, (level, query)
