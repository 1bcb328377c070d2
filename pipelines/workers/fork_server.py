"""The process from which workers are forked: it imports all modules once and starts no thread of its own.

Each line on standard input is a request for one worker: a JSON object of environment variables. Each line on standard
output is the name of a worker that has ended. When standard input closes, because the driver ended, all workers are
killed.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
from collections.abc import Iterator
from importlib import import_module

from pipelines.workers import worker

__all__ = ["main"]

REQUESTS, REPORTS = 0, 1
PRELOADED = ("pipelines.run", "apache_beam.runners.worker.sdk_worker_main")


def main() -> None:
    """Fork one worker per request until stdin closes."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the driver decides
    for module in PRELOADED:
        import_module(module)
    workers: dict[int, tuple[int, str]] = {}  # by the pipe that closes when the worker ends
    for event in _events(workers):
        if isinstance(event, int):
            os.close(event)
            process, name = workers.pop(event)
            os.waitpid(process, 0)
            os.write(REPORTS, f"{name}\n".encode())
            continue
        reader, writer = os.pipe()
        process = os.fork()
        if not process:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.close(reader)
            os.environ.update(event)
            try:
                worker.main()
            finally:
                os._exit(0)
        os.close(writer)
        workers[reader] = process, event["WORKER_ID"]
    for process, _ in workers.values():
        os.kill(process, signal.SIGKILL)


def _events(workers: dict[int, tuple[int, str]]) -> Iterator[dict[str, str] | int]:
    """Yield each request as it arrives, and the pipe of each worker that ended."""
    pending = b""
    while True:
        ready, _, _ = select.select([REQUESTS, *workers], [], [])
        yield from (pipe for pipe in ready if pipe != REQUESTS)
        if REQUESTS in ready:
            read = os.read(REQUESTS, 1 << 16)
            if not read:
                return
            *lines, pending = (pending + read).split(b"\n")
            yield from (json.loads(line) for line in lines)


if __name__ == "__main__":
    main()
