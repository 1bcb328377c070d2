"""Progress on any runner: workers count the elements that their steps have done, each in a file of its own.

The driver reads as many files as there are worker processes, and of each what was added since; it lists no folder of
results, of which a nation has thousands.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from uuid import uuid4

from das.storage.staging import SCRATCH

__all__ = ["note_step", "watch_progress"]

EVERY_SECONDS = 0.25
COUNTERS = "progress"
"""The folder of the counters, in what a stage keeps for itself."""


class _Counter:
    """The counts of one process for one stage, which are written now and then."""

    def __init__(self, folder: Path) -> None:
        self._path, self._process = folder / uuid4().hex, os.getpid()
        self._new: Counter[str] = Counter()
        self._written = -EVERY_SECONDS
        self._lock = threading.Lock()

    @property
    def is_mine(self) -> bool:
        """Whether this process made it, and not the one that this process was forked from."""
        return self._process == os.getpid()

    def add(self, step: str) -> None:
        """Count an element."""
        with self._lock:
            self._new[step] += 1
            if monotonic() - self._written >= EVERY_SECONDS:
                lines = "".join(f"{calls} {name}\n" for name, calls in self._new.items())
                with suppress(OSError), self._path.open("a") as file:  # nobody watches, or the disk is full
                    file.write(lines)
                self._new.clear()
                self._written = monotonic()


_COUNTERS: dict[Path, _Counter] = {}


def note_step(partial: Path, step: str) -> None:
    """Count an element that a step has done for the stage that writes into a partial folder."""
    folder = partial / SCRATCH / COUNTERS
    if folder not in _COUNTERS or not _COUNTERS[folder].is_mine:
        _COUNTERS.clear()  # a process works for one stage at a time
        _COUNTERS[folder] = _Counter(folder)
    _COUNTERS[folder].add(step)


class _Reader:
    """Reads what workers have added to their counters."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders
        self._read: dict[Path, int] = {}
        self.calls: Counter[str] = Counter()

    def look(self) -> None:
        """Add what is new."""
        for path in [path for folder in self._folders for path in folder.iterdir()]:
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.decode().splitlines():
                calls, _, step = line.partition(" ")
                self.calls[step] += int(calls)


@contextmanager
def watch_progress(
    partials: tuple[Path, ...], steps: Mapping[str, int], shards: int, report: Callable[[int], None]
) -> Iterator[None]:
    """Report how much of a stage is done, as a number of its shards, until it ends.

    Parameters
    ----------
    partials : tuple of Path
        The partial folders that the stage writes into.
    steps : mapping
        The steps that count, and how many elements each of them will have done in the end.
    shards : int
        How many shards the stage has.
    report : callable
        Called with the number of shards.
    """
    folders = [partial / SCRATCH / COUNTERS for partial in partials]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        folder.mkdir(parents=True)
    ended, reader, expected = threading.Event(), _Reader(folders), max(1, sum(steps.values()))

    def count() -> None:
        while not ended.wait(EVERY_SECONDS):
            with suppress(OSError):  # a network may fail for a moment
                reader.look()
            done = sum(min(calls, reader.calls[step]) for step, calls in steps.items())  # some are done twice
            report(shards * done // expected)

    counter = threading.Thread(target=count, daemon=True)
    report(0)
    counter.start()
    try:
        yield
    finally:
        ended.set()
        counter.join()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
    report(shards)
