"""A worker works for one run and ends with it, even if nobody is left to tell it so.

An engine outlives the command that uses it: the command may be killed, or the job server, while the job goes on. A
worker that is left over would write into the folder of the next run. So each run writes a token beside its output, a
worker that was started for another token ends by itself, and a run waits until all have had the time to.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from das.storage.files import write_atomically

__all__ = ["exit_when_run_ends", "holds", "token_in"]

NAME = ".lease"
LOOK_EVERY_SECONDS = 0.5


@contextmanager
def token_in(out: Path) -> Iterator[str]:
    """Hold the lease of a folder; yields what a worker must be told to recognise it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with token_in(Path(folder)) as lease:
    ...         while_held = holds(lease)
    ...     while_held, holds(lease)
    (True, False)
    """
    path, token = out.resolve() / NAME, uuid.uuid4().hex
    write_atomically(path, token.encode())
    time.sleep(2 * LOOK_EVERY_SECONDS)
    try:
        yield f"{token} {path}"
    finally:
        path.unlink(missing_ok=True)


def holds(lease: str) -> bool:
    """Whether the run that this lease is of is still the one at work in its folder."""
    token, _, path = lease.partition(" ")
    try:
        return Path(path).read_text() == token
    except OSError:
        return False


def exit_when_run_ends(lease: str | None, end: Callable[[], None] = lambda: os._exit(1)) -> None:
    """End this process, without ceremony, as soon as its parent is gone or the lease is over."""
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent and (lease is None or holds(lease)):
            time.sleep(LOOK_EVERY_SECONDS)
        end()

    threading.Thread(target=look, daemon=True, name="lease").start()
