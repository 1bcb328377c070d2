"""Progress on any runner: the number of files that the stage has written so far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["watch_progress"]

EVERY_SECONDS = 0.25


@contextmanager
def watch_progress(folders: tuple[Path, ...], shards: int, report: Callable[[int], None]) -> Iterator[None]:
    """Report how many of the stage's files exist, until the stage ends."""
    ended = threading.Event()

    def count() -> None:
        while not ended.wait(EVERY_SECONDS):
            written = (path for folder in folders for path in folder.rglob("*.parquet"))
            report(min(shards, sum(1 for path in written if path.is_file() and not path.name.startswith("."))))

    counter = threading.Thread(target=count, daemon=True)
    report(0)
    counter.start()
    try:
        yield
    finally:
        ended.set()
        counter.join()
    report(shards)
