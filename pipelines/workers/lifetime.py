"""Bind a worker to one run: it exits when the run's token is gone.

A cluster outlives the command that uses it: the command or the job server may be killed while the job goes on. A worker
that is left over would write into the folder of the next run. So each run writes a lifetime token beside its output. A
worker that was started with another token exits, and a new run first waits long enough for all of them to do so.
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

NAME = ".lifetime"
CHECK_EVERY_SECONDS = 0.5


@contextmanager
def token_in(out: Path) -> Iterator[str]:
    """Write a new token into a folder, and remove it afterwards; yields the token with its path, for the workers.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with token_in(Path(folder)) as token:
    ...         while_held = holds(token)
    ...     while_held, holds(token)
    (True, False)
    """
    path, number = out.resolve() / NAME, uuid.uuid4().hex
    write_atomically(path, number.encode())
    time.sleep(2 * CHECK_EVERY_SECONDS)
    try:
        yield f"{number} {path}"
    finally:
        path.unlink(missing_ok=True)


def holds(token: str) -> bool:
    """Whether the token is still in its folder: the run that wrote it goes on, and no other has begun there."""
    number, _, path = token.partition(" ")
    try:
        return Path(path).read_text() == number
    except OSError:
        return False


def exit_when_run_ends(token: str | None, end: Callable[[], None] = lambda: os._exit(1)) -> None:
    """Exit this process, without cleanup, as soon as its parent is gone or the token no longer holds."""
    parent = os.getppid()

    def check() -> None:
        while os.getppid() == parent and (token is None or holds(token)):
            time.sleep(CHECK_EVERY_SECONDS)
        end()

    threading.Thread(target=check, daemon=True, name="das_lifetime").start()
