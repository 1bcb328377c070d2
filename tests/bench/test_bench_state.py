"""``das bench state``: the object it prints, on a state that is small."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from das import cli
from das.bench.process_tree import ProcessTree
from das.errors import UsageError
from das.runner import STAGES


@pytest.mark.slow
def test_its_numbers_fit_together() -> None:
    said = CliRunner().invoke(cli.das, ["bench", "state", "--json", "--blocks", "40"])
    found = json.loads(said.output)
    assert {"seconds", "peak_gb", "beam_share", "blocks", "cells", "stages"} <= found.keys()
    assert (found["blocks"], found["people"], found["cells"]) == (40, 1600, 2016)
    assert list(found["stages"]) == list(STAGES)
    assert sum(found["stages"].values()) == pytest.approx(found["seconds"])
    assert 0 < found["beam_share"] < 1
    assert 0.05 < found["peak_gb"] < 4
    assert found["geounits"]["block"] == 40
    assert found["families"]["state"] == found["families"]["county"] == 1
    steps = found["details"]["estimate"]["steps"]
    for level in found["geounits"]:
        for step in (f"estimate {level}", f"write {level}"):
            assert steps[step]["calls"] == 1
    for name, stage in found["details"].items():
        inside = sum(step["cpu_seconds"] for step in stage["steps"].values())
        assert stage["cpu_seconds"] > 0.9 * inside, name  # also of the stages that run in another process
        assert stage["peak_gb"] > 0.05
        ours = sum(step["seconds"] for step in stage["steps"].values())
        assert ours + stage["beam_seconds"] <= stage["seconds"] * (1 + 1e-6)


def test_processes_that_come_and_go_are_counted() -> None:
    busy = "sum(i * i for i in range(2_000_000)); import time; time.sleep(0.4)"
    with ProcessTree(followed=True) as tree:
        assert tree.take_peak_bytes() > 0
        subprocess.run(
            [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"]
        )
        assert 0.05 < tree.cpu_seconds() < 60


def test_what_other_benches_do_not_know_is_refused() -> None:
    for extra in (["--blocks", "40"], ["--", "--runner=multi-process"]):
        said = CliRunner().invoke(cli.das, ["bench", "noise", *extra])
        assert isinstance(said.exception, UsageError)
