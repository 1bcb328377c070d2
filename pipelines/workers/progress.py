"""Progress that works on any runner: count the files that the stage has written so far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["watch_progress"]

EVERY_SECONDS = 0.25


@contextmanager
def watch_progress(folders: tuple[Path, ...], shards: int, tell: Callable[[int], None]) -> Iterator[None]:
    """Tell how many of the stage's files are there, until the stage ends."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(EVERY_SECONDS):
            written = (path for folder in folders for path in folder.rglob("*.parquet"))
            tell(min(shards, sum(1 for path in written if path.is_file() and not path.name.startswith("."))))

    watcher = threading.Thread(target=look, daemon=True)
    tell(0)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    tell(shards)
