"""The log of a worker of a cluster: when it began, what it is, and where a step failed; never a value of the data.

Beam's worker writes tracebacks, which may quote data; its output is discarded (:mod:`pipelines.workers.worker`).
These lines go to the standard error that the cluster gave the worker, which is where an engineer looks. An error is
named by its type and by the place in the source; what it says may quote a record, and reaches only the driver.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from types import TracebackType

__all__ = ["describe", "open_log", "place_of", "say"]

_log: list[int] = []
"""The descriptor that lines are written to; empty where nobody opened a log."""


def open_log(descriptor: int = 2) -> None:
    """Keep a copy of a descriptor for these lines; what the worker itself writes there may then be discarded."""
    _log[:] = [os.dup(descriptor)]


def say(text: str) -> None:
    """Write one line, with the time and the process; nothing where no log was opened, or where it cannot be written."""
    for descriptor in _log:
        with suppress(OSError):
            os.write(descriptor, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} das-worker {os.getpid()}: {text}\n".encode())


def describe() -> str:
    """What this worker is.

    >>> describe().split(",")[0].startswith("das ")
    True
    """
    packages = ", ".join(f"{name} {version(name)}" for name in ("das", "apache-beam"))
    return f"{packages}, Python {sys.version_info.major}.{sys.version_info.minor}, user {os.geteuid()}"


def place_of(traceback: TracebackType | None) -> str:
    """File and line of the innermost call, without what was called with.

    >>> try:
    ...     int("a record")
    ... except ValueError as error:
    ...     place_of(error.__traceback__).endswith(":2")
    True
    """
    where = "unknown"
    while traceback is not None:
        where = f"{os.path.basename(traceback.tb_frame.f_code.co_filename)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return where
