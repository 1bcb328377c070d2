"""CPU time and memory of this process and of all that descend from it, as Linux counts them.

The stages after the wall run in a process of their own, and so does every worker. None of them is a child that this
process waits for, so their times are not in its own: they are read from ``/proc``.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from time import thread_time
from types import TracebackType
from typing import Self

__all__ = ["ProcessTree"]

EVERY_SECONDS = 0.1
_TICK = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


class ProcessTree:
    """A process and its descendants, from the beginning to the end of a context.

    Parameters
    ----------
    followed : bool
        Look again and again, in a thread, because some of them end on the way; the last tenth of a second of each is
        not seen. Otherwise only those count that are there when a number is asked for.

    Examples
    --------
    >>> with ProcessTree() as tree:
    ...     _ = sum(range(10_000))
    ...     tree.cpu_seconds() >= 0.0, tree.take_peak_bytes() > 1_000_000
    (True, True)
    """

    def __init__(self, *, followed: bool = False) -> None:
        self._root = os.getpid()
        self._cpu: dict[tuple[int, int], int] = {}  # ticks by process and time of its start: numbers are used again
        self._peak, self._following = 0, 0.0
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True) if followed else None

    def __enter__(self) -> Self:
        self._look()
        self._before = sum(self._cpu.values())
        self.take_peak_bytes()
        if self._thread:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread:
            self._thread.join()

    def cpu_seconds(self) -> float:
        """CPU time that all of them have used since the beginning; what following them took does not count."""
        self._look()
        return (sum(self._cpu.values()) - self._before) / _TICK - self._following

    def take_peak_bytes(self) -> int:
        """Largest resident memory that any one of them has had since this was last asked."""
        self._look()
        with self._lock:
            peak, self._peak = self._peak, 0
            for process, _ in self._members():
                with suppress(OSError):  # where it is not allowed, peaks are those since the beginning
                    (_PROC / str(process) / "clear_refs").write_text("5")
        return peak

    def _follow(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            self._look()
            self._following = thread_time()

    def _look(self) -> None:
        with self._lock:
            for process, fields in self._members():
                used, begun = int(fields[11]) + int(fields[12]), int(fields[19])
                self._cpu[process, begun] = used
                self._peak = max(self._peak, _peak_of(process))

    def _members(self) -> list[tuple[int, list[str]]]:
        """This process and its descendants, with the fields of their ``stat`` after the name."""
        found: dict[int, list[str]] = {}
        for name in filter(str.isdigit, os.listdir(_PROC)):
            with suppress(OSError):
                found[int(name)] = (_PROC / name / "stat").read_text().rpartition(")")[2].split()
        members, size = {self._root}, 0
        while len(members) > size:
            size = len(members)
            members |= {process for process, fields in found.items() if int(fields[1]) in members}
        return [(process, found[process]) for process in sorted(members & found.keys())]


def _peak_of(process: int) -> int:
    with suppress(OSError):
        for line in (_PROC / str(process) / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 0
