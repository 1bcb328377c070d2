"""Run the command line in a process of its own, and optionally signal it just before a change to the disk.

``runpy`` runs this file in a forked process (see conftest.py); nothing in das knows of it. Python tells audit hooks of
each open, mkdir, rename, remove and chmod before it happens: those are the moments at which a run can be killed.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

CHANGES = {"os.mkdir": (0, 2), "os.rename": (1, 3), "os.remove": (0, 1), "os.chmod": (0, 2), "os.rmdir": (0, 1)}
"""Events that change the disk: which argument names what is changed, and which is the handle of its folder."""


def change_of(event: str, arguments: tuple[object, ...]) -> tuple[str, str] | None:
    """Name a change to the disk as (verb, path), or None for any other event."""
    name, handle = CHANGES.get(event, (0, 0))
    named = arguments[name] if event in CHANGES else None
    if isinstance(named, str | bytes | os.PathLike):
        within = arguments[handle] if isinstance(arguments[handle], int) and arguments[handle] != -1 else None
        path = (
            os.fsdecode(named) if within is None else f"{os.readlink(f'/proc/self/fd/{within}')}/{os.fsdecode(named)}"
        )
        return event.removeprefix("os."), path
    if event == "sqlite3.connect":
        return "ledger", os.fsdecode(arguments[0]).split("?")[0].removeprefix("file://")  # type: ignore[arg-type]
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        flags = arguments[2]
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
            return "write", os.fsdecode(arguments[0])
    return None


def signal_before_change(folder: str, before: int | tuple[tuple[str, str], ...], number: int) -> Callable[[], int]:
    """Signal this process before a change below ``folder``; return what tells how many changes there were.

    ``before`` is the change's place in the sequence of all of them, or a few (verb, end of path) that must come one
    after the other, the last of which names the change.
    """
    seen = mmap.mmap(-1, 8)  # shared with the processes that are forked from here: a run has one sequence of changes
    left = list(before) if isinstance(before, tuple) else []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        change = change_of(event, arguments)
        if change is not None and change[1].endswith(".writing") and not change[1].startswith("/"):
            change = change[0], f"{folder}/{change[1]}"  # Python does not say in which folder the file is opened
        if change is None or not change[1].startswith(folder):
            return
        if left and change[0] == left[0][0] and change[1].endswith(left[0][1]):
            del left[0]
            if not left:
                os.kill(os.getpid(), number)
        place = int.from_bytes(seen[:], "little")
        seen[:] = (place + 1).to_bytes(8, "little")
        if place == before:
            os.kill(os.getpid(), number)

    sys.addaudithook(hook)
    return lambda: int.from_bytes(seen[:], "little")


def main(
    *,
    arguments: list[str],
    outputs: str,
    folder: str = "/",
    before: int | tuple[tuple[str, str], ...] = -1,
    number: int = signal.SIGKILL,
    log: str | None = None,
    umask: int = 0o022,
    numbers_per_shard: int | None = None,
) -> None:
    """Run ``das`` with its outputs in files; with smaller shards, if asked for, so that a small world has many."""
    os.umask(umask)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(str(Path(outputs) / name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
    changes = signal_before_change(folder, before, number)
    from das.cli import main as das
    from das.storage import shards

    shards.NUMBERS_PER_SHARD = numbers_per_shard or shards.NUMBERS_PER_SHARD

    try:
        das(arguments)
    finally:
        if log:
            Path(log).write_text(str(changes()))


if __name__ == "__main__" and "JOB" in globals():
    main(**globals()["JOB"])
