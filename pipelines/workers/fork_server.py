"""The process from which others are forked: it has imported all modules, holds no data, and starts no thread.

A request is one message on its socket: a JSON object that says what to run, with the descriptors it needs. The answer
is the new process's descriptor (``pidfd``), by which the driver sees its end and can signal it. When the driver ends,
its end of the socket closes, this process ends, and the kernel kills every process that was forked here.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
from importlib import import_module
from typing import Any

from das.storage.hardening import harden
from pipelines.workers import remote_call, worker

__all__ = ["CALL", "MESSAGE", "WORKER", "main", "serve"]

PRELOADED = ("pipelines.run", "apache_beam.runners.worker.sdk_worker_main")
WORKER, CALL = "worker", "call"
MESSAGE = 1 << 16
"""The most bytes that a request may have."""


def main() -> None:
    """Import all modules, then serve the socket on standard input."""
    harden()  # whatever is forked here inherits it
    logging.disable(logging.CRITICAL)
    for module in PRELOADED:
        import_module(module)
    requests = socket.socket(fileno=os.dup(0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    serve(requests)


def serve(requests: socket.socket) -> None:
    """Fork a process per request until the driver ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the driver decides
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets a process as soon as it has ended
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, MESSAGE, 2)
        if not message:
            return
        process = os.fork()
        if not process:
            try:
                requests.close()  # what is forked here cannot have others forked
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                remote_call.end_with_parent()
                _run(json.loads(message), descriptors)
            finally:
                os._exit(0)
        handle = os.pidfd_open(process)
        socket.send_fds(requests, [b"forked"], [handle])
        for descriptor in (*descriptors, handle):
            os.close(descriptor)


def _run(request: dict[str, Any], descriptors: list[int]) -> None:
    if request["run"] == CALL:
        remote_call.serve(*descriptors)
    elif request["run"] == WORKER:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        worker.main(os.environ | request["environment"])


if __name__ == "__main__":
    main()
