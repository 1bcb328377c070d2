"""The wall is in the types: mypy refuses true counts wherever protected ones belong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

HEAD = """\
from typing import TYPE_CHECKING

from das.noise.measure import noisy_answers
from das.release.microdata import table_of_records
from das.schema.counts import ProtectedCounts, TrueCounts
from das.storage.counts import table_of_counts
from pipelines.elements.messages import send_down
from pipelines.elements.arrays import Arrays, sparse_counts

def after_the_wall(true: TrueCounts, protected: ProtectedCounts, **given: object) -> None:
"""
RIGHT = [
    "table_of_records(PLAN, CODES, protected)",
    "table_of_counts(SCHEMA, CODES, protected)",
    "list(send_down(WORK, 'block', UNITS, protected, None))",
    "noisy_answers((), CODES, true, STREAMS)",
    "ProtectedCounts.sum_of([protected], 4)",
]
WRONG = [
    "table_of_records(PLAN, CODES, true)",
    "table_of_counts(SCHEMA, CODES, true)",
    "list(send_down(WORK, 'block', UNITS, true, None))",
    "noisy_answers((), CODES, protected, STREAMS)",
    "ProtectedCounts.sum_of([protected, true], 4)",
    "protected = true",
    "protected = true.within(0, 4)",
    "protected = sparse_counts(TrueCounts, ELEMENT)",
]
NAMES = """
from das.noise.stream import Streams
from das.plan.plan import Plan
from das.schema.schema import Schema
from pipelines.elements.context import WorkerContext
import numpy as np
from numpy.typing import NDArray
PLAN: Plan
CODES: NDArray[np.str_]
SCHEMA: Schema
UNITS: NDArray[np.int64]
WORK: WorkerContext
STREAMS: Streams
ELEMENT: Arrays
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What mypy says of each planted line, all in one run, and of the right ones."""
    lines = [*RIGHT, *WRONG]
    planted = tmp_path_factory.mktemp("planted") / "planted.py"
    source = HEAD + "".join(f"    {line}\n" for line in lines) + NAMES
    planted.write_text(source)
    first = HEAD.count("\n") + 1
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(planted)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    said: dict[str, list[str]] = {line: [] for line in lines}
    for text in done.stdout.splitlines():
        if "planted.py:" in text and ": error:" in text:
            number = int(text.split("planted.py:")[1].split(":")[0]) - first
            assert 0 <= number < len(lines), text
            said[lines[number]].append(text)
    assert done.returncode == 1, done.stdout + done.stderr
    return said


@pytest.mark.parametrize("line", RIGHT)
def test_what_belongs_together_is_accepted(errors: dict[str, list[str]], line: str) -> None:
    assert errors[line] == []


@pytest.mark.parametrize("line", WRONG)
def test_true_counts_are_refused_after_the_wall(errors: dict[str, list[str]], line: str) -> None:
    assert errors[line], f"mypy accepted: {line}"
