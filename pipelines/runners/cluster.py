"""A cluster on this machine alone: its Java processes, and Beam's job server in front of them.

What travels through a cluster while records are tabulated is as confidential as the records, and whoever reaches its
job server can run any command as its owner. Beam's job server, its artifact service and the ports by which its runner
talks to Python workers listen on every interface, ask nobody who they are, and have no setting to change this. So all
processes of a cluster live in a private network (:mod:`pipelines.runners.private_network`); logs and spilled data are
in a private folder. Where the kernel allows no such network, a cluster is started only with ``--trust-network``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from das.errors import Problem, UsageError
from das.storage.files import make_private
from pipelines.runners.jars import Distribution, cache_folder, jars, java
from pipelines.runners.private_network import PrivateNetwork, listening_in

__all__ = ["JOB_SERVER", "Cluster", "Process"]

JOB_SERVER = "jobserver"
START_SECONDS = 120
STOP_SECONDS = 20

OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.text"),
    *("java.time", "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks"),
    *("sun.net.util", "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
"""Packages of the Java runtime to which Flink and Spark need reflective access."""

LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5p %c{1} - %m%n
"""

ASK = "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[1], timeout=5).read())"
"""A program that reads a page; it runs in the cluster's network."""

WORKER: Mapping[str, str] = {
    "environment_type": "PROCESS",
    "environment_config": json.dumps({"command": str(Path(sys.executable).with_name("das-worker"))}),
    "environment_cache_millis": "3000",  # one worker for all steps of a stage, instead of one each
}
"""Beam's options for Python workers that the cluster's processes start on their own machine."""


@dataclass(frozen=True, slots=True)
class Process:
    """One Java process of a cluster, and the addresses at which it alone may listen."""

    name: str
    main: str
    heap: str
    arguments: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    listens: tuple[str, ...] = ()


class Cluster(ABC):
    """What all clusters share; a subclass names its processes and says when they can take work."""

    distribution: ClassVar[Distribution]
    job_endpoint: ClassVar[str]
    options: ClassVar[Mapping[str, str]]
    """What ``--runner=NAME`` adds to Beam's own defaults; an option on the command line takes precedence."""

    @abstractmethod
    def processes(self) -> tuple[Process, ...]:
        """List the processes in the order in which they are to be started."""

    @abstractmethod
    def has_workers(self) -> bool:
        """Whether the cluster reports all of its workers."""

    def settings(self) -> Mapping[str, str]:
        """Files to write into the folder before anything is started: name to content."""
        return {}

    def environment(self) -> Mapping[str, str]:
        """Environment variables for all processes."""
        return {}

    @property
    def title(self) -> str:
        """The cluster's name."""
        return self.distribution.cluster

    @property
    def name(self) -> str:
        """The cluster's name as it is typed."""
        return self.title.lower()

    @property
    def start(self) -> str:
        """The command that starts it."""
        return f"bash scripts/{self.name} up"

    @property
    def stop(self) -> str:
        """The command that stops it."""
        return f"bash scripts/{self.name} down"

    @property
    def folder(self) -> Path:
        """Where logs, numbers of processes and temporary data are."""
        return cache_folder() / f"{self.name}-cluster"

    @property
    def network(self) -> PrivateNetwork:
        """The network in which its processes run, unless they were started with ``--trust-network``."""
        return PrivateNetwork(self.folder)

    @property
    def flags(self) -> tuple[str, ...]:
        """The options of every Java process."""
        return (
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            "-XX:+UseSerialGC",
            f"-Djava.io.tmpdir={self.folder / 'tmp'}",
            f"-Dlog4j.configurationFile=file:{self.folder / 'log4j2.properties'}",
        )

    def job_server(self, main: str, heap: str, flags: tuple[str, ...] = (), **arguments: str) -> Process:
        """Beam's job server, with the arguments that are the same for every cluster and those of this one."""
        host, _, port = self.job_endpoint.partition(":")
        common = {"job-host": host, "job-port": port, "artifact-port": "0", "expansion-port": "0"}
        common["artifacts-dir"] = str(self.folder / "artifacts")
        given = common | {name.replace("_", "-"): value for name, value in arguments.items()}
        listed = tuple(f"--{name}={value}" for name, value in given.items())
        return Process(JOB_SERVER, main, heap, listed, flags, (self.job_endpoint,))

    def up(self, *, trust_network: bool = False) -> None:
        """Start the processes that do not run, and wait until the cluster can take work.

        Parameters
        ----------
        trust_network : bool
            Do without a private network: everybody who reaches this machine's ports reaches the cluster.
        """
        classes, command = jars(self.distribution), java(self.title)
        for folder in (self.folder.parent, self.folder, self.folder / "tmp", self.folder / "artifacts"):
            make_private(folder)
        missing = [process for process in self.processes() if self.pid_of(process.name) is None]
        if len(missing) == len(self.processes()):
            self._remove_spilled()
        if not trust_network:
            self._require_private(missing)
            self.network.up()
        self._require_free(address for process in missing for address in process.listens)
        for name, content in {"log4j2.properties": LOGGING, **self.settings()}.items():
            (self.folder / name).write_text(content)
        for process in missing:
            self._start(process, command, classes)
        deadline = time.monotonic() + START_SECONDS
        while not self.is_up():
            dead = [process.name for process in self.processes() if self.pid_of(process.name) is None]
            if dead or time.monotonic() > deadline:
                reason = "ended at once" if dead else f"did not get ready within {START_SECONDS} s"
                where = dead[0] if dead else "the cluster"
                raise UsageError(Problem(where, reason, f"see its log in {self.folder}"))
            time.sleep(0.5)

    def down(self) -> None:
        """Stop the cluster, and end its network."""
        pids = [pid for process in self.processes() if (pid := self.pid_of(process.name))]
        for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
            deadline = time.monotonic() + seconds
            for pid in filter(self._is_ours, pids):
                os.kill(pid, number)
            while any(map(self._is_ours, pids)) and time.monotonic() < deadline:
                time.sleep(0.2)
        for process in self.processes():
            self.pid_file(process.name).unlink(missing_ok=True)
        self._remove_spilled()
        self.network.down()

    def _remove_spilled(self) -> None:
        """Remove what processes that have ended wrote to disk for want of memory: a killed one leaves it there."""
        for left in (self.folder / "tmp").glob("*"):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)

    def is_up(self) -> bool:
        """Whether all processes run and can take work."""
        return self.listens(self.job_endpoint) and self.has_workers()

    def listens(self, address: str) -> bool:
        """Whether somebody listens at an address in the cluster's network."""
        return int(address.rpartition(":")[2]) in listening_in(self.network.pid)

    def ask(self, address: str) -> dict[str, int]:
        """Read a status page as JSON, in the cluster's network; an empty dict if there is no answer."""
        command = [*self.network.prefix, sys.executable, "-I", "-S", "-c", ASK, f"http://{address}"]
        said = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            status: dict[str, int] = json.loads(said.stdout)
        except ValueError:
            return {}
        return status

    def pid_of(self, name: str) -> int | None:
        """The number of a process of the cluster, if it runs."""
        try:
            pid = int(self.pid_file(name).read_text())
        except (OSError, ValueError):
            return None
        return pid if self._is_ours(pid) else None

    def pid_file(self, name: str) -> Path:
        """Where the number of a process is written."""
        return self.folder / f"{name}.pid"

    def beam_that_runs(self) -> str | None:
        """The Beam release of the running job server, from its command line; it cannot be asked. None if none runs."""
        pid = self.pid_of(JOB_SERVER)
        class_path = rf"/{self.name}-[^/]+-beam-([^/]+)/".encode()
        match = pid and re.search(class_path, _command_of(pid))
        return match[1].decode() if match else None

    def _require_private(self, missing: list[Process]) -> None:
        """Refuse to add to a cluster that runs outside a private network."""
        if len(missing) < len(self.processes()) and self.network.pid is None:
            reason = "runs, and not in a private network: it was started with --trust-network, or the network has ended"
            raise UsageError(Problem(self.title, reason, f"stop it with `{self.stop}`, then `{self.start}`"))

    def _require_free(self, addresses: Iterable[str]) -> None:
        for address in filter(self.listens, addresses):
            raise UsageError(Problem(address, "another program listens there", "stop it, or use its cluster"))

    def _start(self, process: Process, command: str, classes: Path) -> None:
        flags = [*self.flags, f"-Xmx{process.heap}", *process.flags, "-cp", f"{classes}/*"]
        argv = [*self.network.prefix, command, *flags, process.main, *process.arguments]
        files = (
            (0, os.devnull, os.O_RDONLY),
            (1, str(self.folder / f"{process.name}.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        )
        actions = [(os.POSIX_SPAWN_OPEN, *file, 0o600) for file in files] + [(os.POSIX_SPAWN_DUP2, 1, 2)]
        environment = {**os.environ, **self.environment()}
        pid = os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsid=True)  # to outlive this process
        self.pid_file(process.name).write_text(str(pid))

    def _is_ours(self, pid: int) -> bool:
        """Whether the process is alive and belongs to the cluster; another may have been given the number since."""
        try:
            command = _command_of(pid).split(b"\0")
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return False
        return state != "Z" and any(process.main.encode() in command for process in self.processes())


def _command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
