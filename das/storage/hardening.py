"""A process that holds records or the key: no core dump, and no other process of any ordinary user may look into it."""

from __future__ import annotations

import ctypes
import resource

__all__ = ["harden"]

_PR_SET_DUMPABLE = 4


def harden() -> None:
    """Forbid core dumps of this process, and let nobody but the administrator trace it or read its memory.

    The kernel then also gives the process's files in ``/proc`` to the administrator: its own memory map and descriptors
    can still be read by itself. A forked process inherits this; one that starts another program does not, and calls
    this function itself. It cannot be undone by accident: the limit on core dumps is lowered for good.

    Notes
    -----
    ``PR_SET_DUMPABLE`` (prctl(2)) decides who may attach with ptrace(2) or read ``/proc/PID/mem``. On a system that
    does not have it, the limit on core dumps stands alone.

    Examples
    --------
    >>> harden()
    >>> resource.getrlimit(resource.RLIMIT_CORE)
    (0, 0)
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
