"""Run the command line in a process of its own, and optionally signal it just before a change to the disk.

``runpy`` runs this file in a forked process (see conftest.py); nothing in das knows of it. Python tells audit hooks of
each open, mkdir, rename, remove and chmod before it happens: those are the moments at which a run can be killed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

CHANGES = {"os.mkdir": 0, "os.rename": 1, "os.remove": 0, "os.chmod": 0, "os.rmdir": 0}
"""Events that change the disk, and which of their arguments names what is changed."""


def change_of(event: str, arguments: tuple[object, ...]) -> tuple[str, str] | None:
    """Name a change to the disk as (verb, path), or None for any other event."""
    named = arguments[CHANGES[event]] if event in CHANGES else None
    if isinstance(named, str | bytes | os.PathLike):
        return event.removeprefix("os."), os.fsdecode(named)
    if event == "sqlite3.connect":
        return "ledger", os.fsdecode(arguments[0]).split("?")[0].removeprefix("file://")  # type: ignore[arg-type]
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        flags = arguments[2]
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
            return "write", os.fsdecode(arguments[0])
    return None


def signal_before_change(folder: str, before: int | tuple[tuple[str, str], ...], number: int, log: str | None) -> None:
    """Signal this process before a change below ``folder``.

    ``before`` is the change's place in the sequence of all of them, or a few (verb, end of path) that must come one
    after the other, the last of which names the change.
    """
    seen = 0
    left = list(before) if isinstance(before, tuple) else []
    journal = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if log else None

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        change = change_of(event, arguments)
        if change is None or not change[1].startswith(folder):
            return
        if journal is not None:
            os.write(journal, f"{change[0]} {change[1].removeprefix(folder)}\n".encode())
        if left and change[0] == left[0][0] and change[1].endswith(left[0][1]):
            del left[0]
            if not left:
                os.kill(os.getpid(), number)
        if seen == before:
            os.kill(os.getpid(), number)
        seen += 1

    sys.addaudithook(hook)


def main(
    *,
    arguments: list[str],
    outputs: str,
    folder: str = "/",
    before: int | tuple[tuple[str, str], ...] = -1,
    number: int = signal.SIGKILL,
    log: str | None = None,
    umask: int = 0o022,
) -> None:
    """Run ``das`` with its outputs in files."""
    os.umask(umask)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(str(Path(outputs) / name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
    signal_before_change(folder, before, number, log)
    from das.cli import main as das

    das(arguments)


if __name__ == "__main__" and "JOB" in globals():
    main(**globals()["JOB"])
