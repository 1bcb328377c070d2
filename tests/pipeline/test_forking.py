"""What a forked process keeps of its parent: no file, no socket, and no claim to a number that is in use again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, socket, sys
from contextlib import suppress
from pipelines.workers import forking, remote_call

def collect(descriptors, *, progress, stopwatch):
    # Objects that the fork copied are collected here, and close the numbers that were theirs.
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)
    return sorted({link for link in map(leads_to, os.listdir("/proc/self/fd")) if link.startswith(("/", "socket"))})

def leads_to(name):
    with suppress(OSError):
        link = os.readlink(f"/proc/self/fd/{name}")
        return "" if link == "/dev/null" or link.startswith("/proc/") else link
    return ""

if __name__ == "__main__":
    files = [os.open(sys.argv[1], os.O_RDONLY) for _ in range(20)]
    sockets = [socket.socket() for _ in range(20)]
    numbers = [*files, *(each.fileno() for each in sockets)]
    with forking.ForkServer.forked() as server:
        import __main__
        sys.modules["program"], collect.__module__ = __main__, "program"
        print(remote_call.call(server.call(), collect, numbers))
"""


def test_what_was_inherited_can_be_collected_at_any_time(tmp_path: Path) -> None:
    """Sockets and files of the parent are gone, yet closing their old numbers cuts no pipe of the call."""
    secret = tmp_path / "secret"
    secret.write_text("records")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(
        [sys.executable, program, secret], capture_output=True, text=True, env=environment, timeout=200
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
