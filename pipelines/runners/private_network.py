"""A private network for a cluster: its own loopback and nothing else, which only its owner's processes can enter.

What listens in it, on whatever address, cannot be reached by other users of the machine or from outside it. The process
that holds it is noted in the cluster's folder. See :mod:`pipelines.runners.namespace` for how it is made.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from das.errors import Problem, UsageError
from pipelines.runners import namespace

__all__ = ["PrivateNetwork", "listening_in"]

PROGRAM = namespace.__file__
STOP_SECONDS = 10
LISTEN = "0A"
SETTINGS = Path("/proc/sys")
NEEDED = {
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "user/max_user_namespaces": ("0", "1024"),
    "user/max_net_namespaces": ("0", "1024"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
}
"""Settings of the kernel: the value that forbids a private network, and one that allows it."""


@dataclass(frozen=True, slots=True)
class PrivateNetwork:
    """The private network that a folder stands for, whether or not it exists now."""

    folder: Path

    @property
    def pid_file(self) -> Path:
        """Where the number of the process that holds it is written."""
        return self.folder / "network.pid"

    @property
    def pid(self) -> int | None:
        """The process that holds it; None if there is no such network."""
        try:
            pid = int(self.pid_file.read_text())
        except (OSError, ValueError):
            return None
        return pid if self._is_ours(pid) else None

    @property
    def is_here(self) -> bool:
        """Whether this process is in it."""
        return self.pid is not None and namespace.same_network(self.pid)

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command so that it runs in the network; nothing if it does anyway, or there is none."""
        pid = self.pid
        if pid is None or self.is_here:
            return ()
        return (sys.executable, "-I", "-S", PROGRAM, "enter", str(pid))

    def up(self) -> None:
        """Make the network, unless it exists. Its folder must exist.

        Raises
        ------
        UsageError
            If the kernel does not allow it; says which setting it is.
        """
        if self.pid is not None:
            return
        reader, writer = os.pipe()
        argv = [sys.executable, "-I", "-S", PROGRAM, "hold", str(self.folder.absolute())]
        # It outlives this process, and must not keep the pipe open that somebody reads the command's messages from.
        nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 2)]
        actions = [*nowhere, (os.POSIX_SPAWN_DUP2, writer, 1)]
        pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions, setsid=True)
        os.close(writer)
        with os.fdopen(reader) as answers:
            answer = answers.read()
        if answer != namespace.READY:
            os.waitpid(pid, 0)
            raise UsageError(_refusal(answer))
        self.pid_file.write_text(str(pid))

    def down(self) -> None:
        """End the process that holds the network; the network goes with the last process in it."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + STOP_SECONDS
            while self._is_ours(pid) and time.monotonic() < deadline:
                time.sleep(0.02)
        self.pid_file.unlink(missing_ok=True)

    def _is_ours(self, pid: int) -> bool:
        """Whether the process holds this network, and for this user; another may have been given the number since."""
        process = Path(f"/proc/{pid}")
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
            state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
            owner = process.stat().st_uid
        except OSError:
            return False
        return (
            command[-3:-1] == [b"wait", os.fsencode(self.folder.absolute())] and state != "Z" and owner == os.geteuid()
        )


def listening_in(pid: int | None = None) -> dict[int, bool]:
    """Ports that somebody listens at in a process's network, and whether beyond its loopback; None is this process.

    >>> import socket
    >>> with socket.create_server(("127.0.0.1", 0)) as server:
    ...     listening_in()[server.getsockname()[1]]
    False
    """
    ports: dict[int, bool] = {}
    for name in ("tcp", "tcp6"):
        try:
            rows = Path(f"/proc/{pid or 'self'}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue  # a kernel without this protocol, or a process that has ended
        for row in rows:
            _, local, _, state, *_ = row.split()
            if state == LISTEN:
                address, _, port = local.rpartition(":")
                ports[int(port, 16)] = ports.get(int(port, 16), False) or not _is_loopback(address)
    return ports


def _is_loopback(address: str) -> bool:
    """Whether an address, as the kernel writes it, is one of loopback: words of four bytes in the machine's order."""
    words = [int(address[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(address), 8)]
    if len(words) == 1:
        return words[0][0] == 127
    mapped = words[:3] == [bytes(4), bytes(4), b"\0\0\xff\xff"] and words[3][0] == 127
    return mapped or words == [bytes(4), bytes(4), bytes(4), b"\0\0\0\1"]


def _refusal(answer: str) -> Problem:
    """Say why there can be no private network, and who can change that."""
    try:
        step, _, reason = json.loads(answer)
    except ValueError:
        step, reason = "the process that was to hold it", "ended at once"
    found, remedies = [], []
    for name, (forbids, allows) in NEEDED.items():
        try:
            value = (SETTINGS / name).read_text().strip()
        except OSError:
            continue
        if value == forbids:
            setting = name.replace("/", ".")
            found.append(f"; {setting} is {forbids}")
            remedies.append(f"`sysctl {setting}={allows}`")
    ask = " and ".join(remedies) or "user and network namespaces (in a container: the system calls unshare and setns)"
    remedy = (
        f"ask the administrator for {ask}; or, if nobody else uses or reaches this machine, add --trust-network: "
        "whoever reaches the job server can run any command as you"
    )
    return Problem("a private network", f"cannot be made here ({step}: {reason}{''.join(found)})", remedy)
