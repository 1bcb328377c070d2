"""How a worker tells the person at the keyboard what is wrong, whichever runner stands between them.

A runner turns an exception into text of its own. So a worker leaves its problems as a file in the stage's partial
folder, and the driver raises them again as what they were.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from das import errors
from das.errors import Problem, ProblemsFound
from das.storage.files import write_atomically

__all__ = ["raise_reported", "report_error", "reporting_errors"]

PREFIX = "complaint-"
AT_MOST = 60


def report_error(folder: Path, error: ProblemsFound) -> None:
    """Leave the problems for the driver."""
    content = {
        "kind": type(error).__name__,
        "problems": [[p.where, p.reason, p.remedy] for p in error.problems],
    }
    write_atomically(folder / f"{PREFIX}{uuid.uuid4().hex}.json", json.dumps(content).encode())


@contextmanager
def reporting_errors(folder: Path) -> Iterator[None]:
    """Pass an error on to the driver before the runner wraps it."""
    try:
        yield
    except ProblemsFound as error:
        report_error(folder, error)
        raise


def raise_reported(*folders: Path) -> None:
    """Raise what workers left, if anything: each problem once, in a fixed order."""
    kinds: dict[str, set[Problem]] = {}
    for path in (path for folder in folders for path in folder.glob(f"{PREFIX}*.json")):
        content = json.loads(path.read_bytes())
        kinds.setdefault(content["kind"], set()).update(Problem(*item) for item in content["problems"])
    for kind, problems in sorted(kinds.items()):
        shown = sorted(problems, key=lambda p: (_natural(p.where), p.reason))
        if len(shown) > AT_MOST:
            shown = [*shown[:AT_MOST], Problem("and", f"{len(shown) - AT_MOST} more problems")]
        raise getattr(errors, kind, ProblemsFound)(shown)


def _natural(text: str) -> tuple[str, int]:
    head, _, tail = text.rpartition(" ")
    return (head, int(tail)) if tail.isdigit() else (text, 0)
