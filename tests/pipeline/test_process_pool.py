"""Worker processes that are killed, or whose driver is: the run does not hang, and no process is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest

from das.errors import Interrupted
from pipelines.runners import runner_and_options
from pipelines.runners.preflight import failure_of

TESTING = ("--testing-key", "pool")
MULTI_PROCESS = ("--", "--runner=multi-process", "--direct_num_workers=2")


def below(process: int) -> set[int]:
    """All processes that descend from one, while it lives."""
    children: dict[int, set[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), set()).add(int(stat.parent.name))
    found: set[int] = set()
    new = {process}
    while new:
        new = {child for parent in new for child in children.get(parent, set())} - found
        found |= new
    return found


def until(what: Callable[[], object], seconds: float = 120) -> None:
    begun = time.monotonic()
    while not what():
        assert time.monotonic() - begun < seconds
        time.sleep(0.02)


def started(out: Path) -> tuple[list[str], subprocess.Popen[str]]:
    """A release of a small state in two workers, which by now work on its estimates."""
    command = [str(Path(sys.executable).with_name("das")), "demo", "--out", str(out), "--blocks", "400"]
    command += ["--people", "4000", *TESTING, *MULTI_PROCESS]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    until(lambda: (out / "release" / ".counts.partial").exists() or process.poll() is not None)
    # The process that forks, the driver behind the wall, the process that forks its workers, and the two of them.
    until(lambda: len(below(process.pid)) == 5)
    return command, process


def end(number: int) -> tuple[int, int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return number, number


def test_a_worker_that_ends_within_a_step_interrupts_the_run() -> None:
    """Its elements have arrived, so that both of its channels are open when it ends."""
    runner, options = runner_and_options(MULTI_PROCESS[1:])
    pipeline = beam.Pipeline(runner=runner, options=options)
    _ = pipeline | beam.Create(range(4)) | beam.Reshuffle() | beam.Map(end) | beam.GroupByKey() | beam.Map(len)
    with pytest.raises(RuntimeError) as lost:
        pipeline.run().wait_until_finish()
    assert isinstance(failure_of(lost.value), Interrupted)


@pytest.mark.slow
def test_a_killed_worker_interrupts_the_run_and_the_same_command_continues(tmp_path: Path) -> None:
    command, process = started(tmp_path / "out")
    os.kill(max(below(process.pid)), signal.SIGKILL)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 6, stderr
    assert "a worker process: was ended before its work was done; run the same command again" in stderr
    assert "Traceback" not in stderr
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == 0


@pytest.mark.slow
def test_workers_end_with_their_driver(tmp_path: Path) -> None:
    _, process = started(tmp_path / "out")
    left = below(process.pid)
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not any(Path(f"/proc/{pid}/status").exists() for pid in left), seconds=30)
