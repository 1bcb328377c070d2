"""Worker errors: carry problems from a worker to the driver, whichever runner lies between them.

A runner turns an exception into text of its own. So a worker writes its problems to a file in the stage's partial
folder, and the driver raises them again with their type.
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

PREFIX = "error-"
PROBLEMS_SHOWN = 60


def report_error(folder: Path, error: ProblemsFound) -> None:
    """Write the problems to a file that the driver reads."""
    content = {
        "kind": type(error).__name__,
        "problems": [[p.where, p.reason, p.remedy] for p in error.problems],
    }
    write_atomically(folder / f"{PREFIX}{uuid.uuid4().hex}.json", json.dumps(content).encode())


@contextmanager
def reporting_errors(folder: Path) -> Iterator[None]:
    """Report an error to the driver before the runner wraps it."""
    try:
        yield
    except ProblemsFound as error:
        report_error(folder, error)
        raise


def raise_reported(*folders: Path) -> None:
    """Raise the errors that workers reported, if any: each problem once, in a fixed order."""
    kinds: dict[str, set[Problem]] = {}
    for path in (path for folder in folders for path in folder.glob(f"{PREFIX}*.json")):
        content = json.loads(path.read_bytes())
        kinds.setdefault(content["kind"], set()).update(Problem(*item) for item in content["problems"])
    for kind, problems in sorted(kinds.items()):
        shown = sorted(problems, key=lambda p: (_row_order(p.where), p.reason))
        if len(shown) > PROBLEMS_SHOWN:
            more = len(shown) - PROBLEMS_SHOWN
            shown = [*shown[:PROBLEMS_SHOWN], Problem("and", f"{more} more problems")]
        raise getattr(errors, kind, ProblemsFound)(shown)


def _row_order(text: str) -> tuple[str, int]:
    """Sort key that orders a number at the end of the text by its value: row 9 before row 10."""
    head, _, tail = text.rpartition(" ")
    return (head, int(tail)) if tail.isdigit() else (text, 0)
