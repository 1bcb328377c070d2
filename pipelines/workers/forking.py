"""The driver's handle of a fork server, and of the processes that are forked there."""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Self

from pipelines.workers import fork_server

__all__ = ["ForkServer", "Forked"]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Forked:
    """A process that was forked elsewhere; like ``subprocess.Popen``, with pipes for a remote call."""

    def __init__(self, handle: int, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None) -> None:
        self._handle, self.stdin, self.stdout = handle, stdin, stdout

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; its exit code is known to its parent alone, so it is not returned."""
        ended, _, _ = select.select([self._handle], [], [], timeout)
        if not ended:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        return 0

    def terminate(self) -> None:
        """Ask it to stop."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def __del__(self) -> None:
        """Close the descriptor."""
        os.close(self._handle)


class ForkServer:
    """Has processes forked from one that imported all modules, so that they start fast and hold no data."""

    def __init__(self, requests: socket.socket, wait: Callable[[], object]) -> None:
        self._requests, self._wait, self._lock = requests, wait, threading.Lock()

    @classmethod
    def started(cls, *, one_thread: bool) -> ForkServer:
        """Start the server as a new program, which ends with this one; ``one_thread`` for a worker per core."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            program = subprocess.Popen(
                [sys.executable, "-m", "pipelines.workers.fork_server"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | (ONE_THREAD if one_thread else {}),
            )
        server = cls(ours, program.wait)
        atexit.register(server.close)
        return server

    @classmethod
    def forked(cls) -> ForkServer:
        """Fork the server from this process, which must have no other thread of Python's and hold no data yet."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = os.fork()
        if not child:
            try:
                _close_all_but(theirs.fileno())
                gc.freeze()  # what was imported stays; to look through it again would copy its pages
                fork_server.serve(theirs)
            finally:
                os._exit(0)
        theirs.close()
        return cls(ours, lambda: os.waitpid(child, 0))

    def __enter__(self) -> Self:
        """Use it until the end of the context."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()

    def close(self) -> None:
        """End the server, and with it all that was forked there."""
        self._requests.close()
        self._wait()

    @property
    def is_open(self) -> bool:
        """Whether the server still runs: its end of the socket is open, and nothing is to be read from it."""
        with self._lock:
            if self._requests.fileno() < 0:
                return False
            readable, _, _ = select.select([self._requests], [], [], 0)
            return not readable

    def worker(self, environment: Mapping[str, str]) -> Forked:
        """Start a Beam worker."""
        return self._fork({"run": fork_server.WORKER, "environment": dict(environment)}, ())

    def call(self) -> Forked:
        """Start a process that waits for a call; see :func:`pipelines.workers.remote_call.call`."""
        read_request, write_request = os.pipe()
        read_answers, write_answers = os.pipe()
        try:
            forked = self._fork({"run": fork_server.CALL}, (read_request, write_answers))
        finally:
            os.close(read_request)
            os.close(write_answers)
        forked.stdin, forked.stdout = os.fdopen(write_request, "wb"), os.fdopen(read_answers, "rb")
        return forked

    def _fork(self, request: Mapping[str, object], descriptors: Sequence[int]) -> Forked:
        with self._lock:
            socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
            answer, handles, _, _ = socket.recv_fds(self._requests, fork_server.MESSAGE, 1)
        if not answer:
            raise BrokenPipeError("the fork server has ended")
        return Forked(handles[0])


def _close_all_but(kept: int) -> None:
    """Close every file, folder and socket but one; the standard streams lead nowhere.

    Their numbers stay taken by the null device. Objects that were copied by the fork still close their own numbers when
    they are collected, and would close whatever had been given such a number since. Pipes stay: libraries have pipes to
    themselves, and abort if one is closed behind their back.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (int(name) for name in os.listdir("/proc/self/fd")):
        with suppress(OSError):  # the listing's own is closed already
            kind = os.fstat(descriptor).st_mode
            if descriptor != kept and (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISSOCK(kind)):
                os.dup2(nowhere, descriptor, inheritable=False)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
