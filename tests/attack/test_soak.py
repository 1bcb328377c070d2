"""Fifty runs, killed at random moments: each is continued to the same bytes, charged once, and leaves no key."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from das.demo.starter import write_starter
from das.storage.ledger import Ledger

KILLS = 3
INTERRUPTED = 6
PRELOADED = ["das.cli", "das.checks", "das.demo.starter", "pipelines.run", "das.report.progress"]


def _run(arguments: list[str]) -> None:
    os.setpgid(0, 0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    from das.cli import main

    main(arguments)


def _started(context: Any, *arguments: object) -> Any:
    process = context.Process(target=_run, args=([str(argument) for argument in arguments],))
    process.start()
    return process


def _released(out: Path) -> dict[str, str]:
    folder = out / "release"
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("runs", "options"), [(40, ()), (10, ("--", "--runner=multi-process", "--direct_num_workers=2"))]
)
def test_runs_that_are_killed_at_random_moments(runs: int, options: tuple[str, ...], tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    rng = random.Random(7919)
    config = write_starter(tmp_path / "input")
    whole = _started(context, "run", config, "--out", tmp_path / "whole", "--testing-key", "soak")
    whole.join()
    expected = _released(tmp_path / "whole")
    assert whole.exitcode == 0
    killed = 0
    for number in range(runs):
        config = write_starter(tmp_path / str(number) / "input")
        out = tmp_path / str(number) / "out"
        key = ("--testing-key", "soak") if number % 2 else ()
        for attempt in range(KILLS + 1):
            process = _started(context, "run", config, "--out", out, *key, *options)
            process.join(None if attempt == KILLS else rng.uniform(0.05, 4.0))
            if process.is_alive():
                with suppress(ProcessLookupError):  # it has not become a group yet, or has just ended
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
                process.join()
                killed += process.exitcode != 0
            if process.exitcode == 0:  # also where it ended between the look and the kill
                break
            assert process.exitcode in (-signal.SIGKILL, INTERRUPTED)
        assert process.exitcode == 0
        assert not list((out / "confidential").glob("*run.key*"))
        kinds = [entry.kind for entry in Ledger.open(config.parent / "ledger.sqlite").entries()]
        assert kinds == (["testing"] if key else ["open", "reserve", "commit"])
        released = _released(out)
        assert released.keys() == expected.keys()
        if key:
            assert released == expected
    assert killed > runs // 2
