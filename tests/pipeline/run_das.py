"""Run the command line in a process of its own, and optionally kill it with SIGKILL before a change to the disk.

``runpy`` runs this file in a forked process (see conftest.py); nothing in das knows of it. Python reports each open,
mkdir, rename, remove and chmod to audit hooks before it happens: those moments are where a run can be killed.
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
        return "ledger", os.fsdecode(arguments[0])  # type: ignore[arg-type]
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        flags = arguments[2]
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
            return "write", os.fsdecode(arguments[0])
    return None


def watch(folder: str, kill_before: object, log: str | None) -> None:
    """Kill this process before the change that ``kill_before`` names, by number or as (verb, end of path)."""
    seen = 0
    journal = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if log else None

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        change = change_of(event, arguments)
        if change is None or not (change[0] == "ledger" or change[1].startswith(folder)):
            return
        verb, path = change
        if journal is not None:
            os.write(journal, f"{verb} {path.removeprefix(folder)}\n".encode())
        if seen == kill_before or (
            isinstance(kill_before, tuple) and verb == kill_before[0] and path.endswith(kill_before[1])
        ):
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1

    sys.addaudithook(hook)


def main(arguments: list[str], outputs: str, folder: str, kill_before: object, log: str | None) -> None:
    """Run ``das`` with its outputs in files."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(str(Path(outputs) / name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
    if kill_before is not None or log is not None:
        watch(folder, kill_before, log)
    from das.cli import main as das

    das(arguments)


if __name__ == "__main__" and "JOB" in globals():
    main(**globals()["JOB"])
