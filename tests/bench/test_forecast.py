"""Projections: a law of costs is recovered from measurements that obey it, and real runs are foretold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from das import cli
from das.bench.disk import amounts_of
from das.bench.forecast import NATION, ROWS_HELD, project, read_measured
from das.errors import UsageError
from das.plan import presets
from das.plan.load import load
from das.plan.plan import numbers_per_unit
from pipelines.stages.publish import ROWS_AT_ONCE

PLAN = load(presets.folder() / "demo.toml")
LEVELS = ("state", "county", "tract", "block_group", "block")
FIXED, PER_BLOCK, DRIVER = 0.3, {level: 0.002 * (1 + at) for at, level in enumerate(LEVELS)}, 1.5
GEOUNITS = {500: (1, 3, 5, 16, 500), 2_000: (1, 4, 20, 65, 2_000), 25_000: (1, 5, 250, 806, 25_000)}


def step(level: str, units: int) -> dict[str, float]:
    seconds = (
        FIXED * (level != "state") + PER_BLOCK[level] * units
    )  # with one state in all, the constant cannot be identified
    return {"calls": 1, "seconds": seconds, "cpu_seconds": seconds}


def a_run(blocks: int) -> dict[str, Any]:
    """What a bench would print where every cost is a straight line."""
    geounits = dict(zip(LEVELS, GEOUNITS[blocks], strict=True))
    steps = {f"estimate {level}": step(level, units) for level, units in geounits.items()}
    cpu = sum(s["cpu_seconds"] for s in steps.values()) + DRIVER + 1e-4 * blocks
    detail = {"seconds": cpu, "cpu_seconds": cpu, "peak_gb": 0.5 + 1e-6 * blocks, "steps": steps}
    return {
        "blocks": blocks,
        "people": 40 * blocks,
        "geounits": geounits,
        "numbers_per_geounit": {level: numbers_per_unit(PLAN.at(level)) for level in LEVELS},
        "details": {"estimate": detail},
        "cpu_seconds": cpu,
        "areas": {area.name: blocks // 100 for area in PLAN.settings.geography.areas},
        "disk": {
            kind: 4 * amount
            for kind, amount in amounts_of(
                PLAN, geounits, {area.name: blocks // 100 for area in PLAN.settings.geography.areas}, 40 * blocks
            ).items()
        },
        "options": [],
    }


RUNS = [a_run(500), a_run(2_000)]


def test_a_straight_line_is_carried_on_exactly() -> None:
    found = project(PLAN, RUNS, blocks=25_000)
    (stage,) = found.stages
    law = sum(step(level, units)["cpu_seconds"] for level, units in found.geounits.items())
    assert stage.driver_seconds == pytest.approx(DRIVER + 2.5)
    assert stage.cpu_seconds == pytest.approx(law + DRIVER + 2.5, rel=1e-6)
    assert found.in_memory_gb == pytest.approx(0.525)
    assert found.worker_gb == pytest.approx(0.5)
    assert found.numbers == sum(n * numbers_per_unit(PLAN.at(level)) for level, n in found.geounits.items())
    areas = {area.name: 250 for area in PLAN.settings.geography.areas}
    amounts = amounts_of(PLAN, found.geounits, areas, 1_000_000)
    assert found.disk == pytest.approx({kind: 4e-9 * amount for kind, amount in amounts.items()})
    assert found.disk_gb == pytest.approx(4e-9 * sum(amounts.values()))
    assert amounts["measurements"] == found.numbers
    assert amounts["intervals"] < amounts["tables"]  # of the longest tables there are none
    assert found.spine_gb == pytest.approx(85e-9 * sum(found.geounits.values()))
    assert found.geounits["block"] == 25_000
    # The generated state of that size has this many, more or less: how many depends on its seed.
    for level, real in zip(LEVELS, GEOUNITS[25_000], strict=True):
        assert found.geounits[level] == pytest.approx(real, rel=0.1)


def test_tables_are_held_so_many_rows_at_a_time() -> None:
    assert ROWS_HELD == ROWS_AT_ONCE
    runs = [run | {"details": {"publish": run["details"]["estimate"]}} for run in RUNS]
    found, larger = (project(PLAN, runs, blocks=blocks) for blocks in (ROWS_HELD, 50 * ROWS_HELD))
    assert found.in_memory_gb == found.worker_gb == pytest.approx(0.6)
    assert larger.in_memory_gb == larger.worker_gb == pytest.approx(0.6)


@given(st.integers(10, 10**7), st.integers(1, 10**4))
def test_more_workers_never_take_longer_and_never_do_less(blocks: int, workers: int) -> None:
    one, several = (project(PLAN, RUNS, blocks=blocks, workers=n) for n in (1, workers))
    assert one.seconds == pytest.approx(one.cpu_seconds)
    assert several.cpu_seconds == pytest.approx(one.cpu_seconds)
    assert one.cpu_seconds / workers <= several.seconds * (1 + 1e-9)
    assert several.stages[0].driver_seconds <= several.seconds <= one.seconds * (1 + 1e-9)
    assert json.loads(json.dumps(several.to_json()))["workers"] == workers


def test_the_nation_in_levels_that_were_never_measured() -> None:
    plan = load("pl94-2020-persons-us")
    found = project(plan, RUNS, workers=100)
    sizes = list(found.geounits.values())
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (1, NATION)
    assert any("not measured" in line for line in found.extrapolated)
    text = found.text()
    assert "5,900,000 blocks with 100 workers" in text
    assert "500 blocks" in text
    assert "2,000 blocks" in text


def test_on_the_command_line(tmp_path: Path) -> None:
    for run in RUNS:
        (tmp_path / f"{run['blocks']}.json").write_text(json.dumps(run))
    measured = [word for run in RUNS for word in ("--measured", str(tmp_path / f"{run['blocks']}.json"))]
    arguments = ["plan", str(presets.folder() / "demo.toml"), "--scale", "--blocks", "25000", *measured]
    said = CliRunner().invoke(cli.das, [*arguments, "--json"])
    assert json.loads(said.output)["seconds"] == pytest.approx(project(PLAN, RUNS, blocks=25_000).seconds)
    assert "in all" in CliRunner().invoke(cli.das, arguments).output
    lonely = CliRunner().invoke(cli.das, ["plan", arguments[1], "--workers", "2"])
    assert isinstance(lonely.exception, UsageError)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"blocks": 5}', json.dumps(RUNS[0] | {"options": ["--runner=x"]})])
def test_what_was_not_measured_as_it_should_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text(text)
    with pytest.raises(UsageError, match="measured"):
        read_measured(tmp_path / "measured.json")
