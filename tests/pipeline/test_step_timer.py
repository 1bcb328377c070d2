"""The step timer measures a step alone, and is stopped while Beam and the steps after it work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from time import sleep

import apache_beam as beam
import pytest

from pipelines.runners import runner_and_options
from pipelines.workers import log
from pipelines.workers.step_timer import PROGRESS, count, counters_of, steps_of, timed

OURS, THEIRS = 0.02, 0.1


class Split(beam.DoFn):
    @timed(lambda self, element: f"split {element}")
    def process(self, element: int) -> Iterator[int]:
        for part in range(3):
            sleep(OURS)
            yield part


class Dawdle(beam.DoFn):
    def process(self, element: int) -> Iterator[int]:
        sleep(THEIRS)
        yield element


def test_time_of_a_step_is_its_own() -> None:
    runner, options = runner_and_options([])
    pipeline = beam.Pipeline(runner=runner, options=options)
    _ = pipeline | beam.Create([7, 8, 8]) | beam.ParDo(Split()) | beam.ParDo(Dawdle())
    steps = steps_of(pipeline.run().metrics())
    assert {name: step.calls for name, step in steps.items()} == {"split 7": 1, "split 8": 2}
    for step in steps.values():
        # Three parts a call are waited for here, and three times longer downstream.
        assert 3 * OURS * step.calls <= step.seconds < 3 * THEIRS * step.calls
        assert step.cpu_seconds < step.seconds


def test_what_fails_is_raised_as_it_is() -> None:
    class Broken(beam.DoFn):
        @timed(lambda self, element: "broken")
        def process(self, element: int) -> Iterator[int]:
            yield element // 0

    with pytest.raises(ZeroDivisionError):
        next(Broken().process(1))


def test_the_log_of_a_worker_names_the_place_of_a_failure_and_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(beam.DoFn):
        @timed(lambda self, element: "place records")
        def process(self, element: str) -> Iterator[int]:
            yield int(element)

    monkeypatch.setattr(log, "_log", [])
    with pytest.raises(ValueError, match="CANARY"):
        next(Broken().process("CANARY"))  # nobody opened a log: nothing is said
    with (tmp_path / "log").open("wb") as file:
        log.open_log(file.fileno())
        log.say(f"began; {log.describe()}")
        with pytest.raises(ValueError, match="CANARY"):
            next(Broken().process("CANARY"))
    began, failed = (tmp_path / "log").read_text().splitlines()
    assert f"das {version('das')}, apache-beam {version('apache-beam')}" in began
    assert re.search(r"das-worker \d+: place records: ValueError at test_step_timer.py:\d+$", failed)
    assert "CANARY" not in failed


def test_shards_and_families_are_counted_under_names_for_people() -> None:
    class Solve(beam.DoFn):
        def process(self, element: int) -> Iterator[int]:
            count("families estimated, county", element)
            yield element

    runner, options = runner_and_options([])
    pipeline = beam.Pipeline(runner=runner, options=options)
    _ = pipeline | beam.Create([7, 8]) | beam.ParDo(Solve())
    assert counters_of(pipeline.run().metrics(), PROGRESS) == [("families estimated, county", 15)]
