"""Landlock: a process gives up every file and port that it does not name, and cannot take them back.

The kernel enforces it for the process and all its descendants, root's too, without privileges. Rules name what is
allowed; everything else is refused with EACCES. The system calls are made directly, so nothing must be installed. See
the kernel's ``Documentation/userspace-api/landlock.rst`` for the versions ("ABI") and what each of them handles.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

__all__ = ["abi", "restrict"]

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
PR_SET_NO_NEW_PRIVS = 38
VERSION_FLAG = 1
PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""The rights that a rule about a single file may name."""
FILE_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights to files each version handles: 2 adds renaming across folders, 3 truncation, 5 device calls."""
TCP_SINCE, SCOPES_SINCE = 4, 6
TCP = 0b11
"""Binding to a port, and connecting to one."""
SCOPES = 0b11
"""Abstract Unix sockets of processes outside, and signals to them."""

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The kernel's version of Landlock; 0 if it has none, or has it switched off."""
    return max(0, int(_libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION_FLAG)))


def restrict(*, readable: Iterable[Path], writable: Iterable[Path], network: bool) -> int:
    """Restrict this thread and all that it starts from now on; call it while it is the process's only thread.

    Parameters
    ----------
    readable, writable : iterable of Path
        Folders, with everything below them, and single files. What does not exist is left out.
    network : bool
        Whether TCP may be used.

    Returns
    -------
    int
        The version of Landlock that is in force.

    Raises
    ------
    OSError
        The kernel refused.
    """
    version = abi()
    every = (1 << FILE_RIGHTS_BY_ABI[min(version, max(FILE_RIGHTS_BY_ABI))]) - 1
    ports = TCP if version >= TCP_SINCE and not network else 0
    scopes = SCOPES if version >= SCOPES_SINCE else 0
    attributes = struct.pack("=QQQ", every, ports, scopes)
    size = 24 if version >= SCOPES_SINCE else 16 if version >= TCP_SINCE else 8
    ruleset = _call(CREATE_RULESET, attributes[:size], ctypes.c_size_t(size), 0)
    try:
        for paths, rights in ((readable, READ), (writable, every)):
            for path in paths:
                _allow(ruleset, path, rights & every)
        if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise _failure("prctl")
        _call(RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return version


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= OF_A_FILE
        _call(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", rights, handle), 0)
    finally:
        os.close(handle)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        raise _failure("landlock")
    return result


def _failure(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
