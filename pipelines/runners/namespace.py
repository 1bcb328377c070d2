"""System calls for a private network, as a program: ``hold`` makes and keeps it, ``enter`` runs a command in it.

The kernel keeps a network namespace while a process lives in it. Whoever may not trace that process cannot enter it:
other users cannot, root can. Without privileges, a network namespace needs a user namespace around it, in which only
the own user and group are mapped, each to itself: files belong to whom they belonged before.

A process may change its user namespace only while it has one thread, and most libraries start more when they are
imported. So this file is run by its path, imports the standard library alone, and then executes another command.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

__all__ = ["READY", "enter", "hold", "main", "same_network"]

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
READY = "ready"
NAMESPACES = {"user": CLONE_NEWUSER, "net": CLONE_NEWNET}
"""By their names in ``/proc/PID/ns``, in the order in which they must be entered."""


def hold(name: str) -> NoReturn:
    """Make a network, with nothing in it but loopback, and keep it until this process is ended.

    Writes ``ready`` to standard output, or what failed as JSON: the step, the error's number and its reason.
    """
    step = "unshare"
    try:
        uid, gid = os.geteuid(), os.getegid()
        if not (uid == 0 and _unshare(CLONE_NEWNET) == 0):  # root keeps all its rights to files, if it may
            if number := _unshare(CLONE_NEWUSER | CLONE_NEWNET):
                raise OSError(number, os.strerror(number))
            step = "the map of users"
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        step = "loopback"
        _raise_loopback()
    except OSError as error:
        sys.stdout.write(json.dumps([step, error.errno, error.strerror]))
        sys.stdout.flush()
        os._exit(1)
    # Executing anew lets processes of the same user trace this one again, which entering needs.
    os.execv(sys.executable, [sys.executable, "-I", "-S", __file__, "wait", name])


def wait() -> NoReturn:
    """Say that the network is there, and do nothing more."""
    os.write(1, READY.encode())
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader waits for the end of what is written
    while True:
        signal.pause()


def enter(pid: int, command: Sequence[str]) -> NoReturn:
    """Execute a command in the network of a process; the current process becomes the command."""
    descriptors = {name: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES}
    for name, descriptor in descriptors.items():
        if not os.path.samestat(os.fstat(descriptor), os.stat(f"/proc/self/ns/{name}")):
            library = ctypes.CDLL(None, use_errno=True)
            if library.setns(descriptor, NAMESPACES[name]):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), f"/proc/{pid}/ns/{name}")
    os.execvp(command[0], tuple(command))


def same_network(pid: int) -> bool:
    """Whether a process is in the network of this one; False if that may not be known.

    >>> same_network(os.getpid())
    True
    """
    try:
        return os.path.samefile(f"/proc/{pid}/ns/net", "/proc/self/ns/net")
    except OSError:
        return False


def _unshare(what: int) -> int:
    """Move this process into namespaces of its own; return the error's number, or 0."""
    library = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if library.unshare(what) else 0


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH22x", b"lo", 0)
        flags = struct.unpack_from("H", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request), 16)[0]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))


def main(arguments: Sequence[str]) -> NoReturn:
    """Do what the command line says: ``hold NAME``, ``wait NAME`` or ``enter PID COMMAND...``."""
    verb, first, *rest = arguments
    if verb == "hold":
        hold(first)
    if verb == "wait":
        wait()
    try:
        enter(int(first), rest)
    except OSError as error:
        sys.stderr.write(f"das: {error.filename or rest[0]}: cannot be used ({error.strerror})\n")
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
