"""For kernels without Landlock: a mount namespace in which what is confidential is covered by something empty.

A folder is covered by an empty file system, a file by ``/dev/null``, both read-only. Then all capabilities are dropped,
so that the covers stay. It needs user namespaces that an ordinary user may make; a kernel may refuse them.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from das.storage.hardening import harden

__all__ = ["hide"]

CLONE_NEWNS, CLONE_NEWUSER = 0x0002_0000, 0x1000_0000
MS_RDONLY, MS_BIND, MS_REC, MS_PRIVATE = 1, 4096, 16384, 1 << 18
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
CAPABILITY_VERSION = 0x2008_0522

_libc = ctypes.CDLL(None, use_errno=True)


def hide(paths: Iterable[Path]) -> None:
    """Cover files and folders for this process and all that it starts; call it while it has a single thread.

    Raises
    ------
    OSError
        The kernel refused.
    """
    user, group = os.getuid(), os.getgid()
    _check(_libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))  # or /proc/self, and with it the maps below, would be root's
    _check(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount(None, "/", None, MS_REC | MS_PRIVATE, None)  # what is mounted here stays here
    for path in paths:
        if path.is_dir():
            _mount("none", str(path), "tmpfs", MS_RDONLY, "size=0,mode=000")
        elif path.exists():
            _mount("/dev/null", str(path), None, MS_BIND, None)
    _drop_capabilities()
    harden()


def _drop_capabilities() -> None:
    """Give up the right to remove the covers, for good."""
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    header, none = struct.pack("=Ii", CAPABILITY_VERSION, 0), bytes(24)
    _check(_libc.capset(header, none))


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
    encoded = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    _check(_libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
