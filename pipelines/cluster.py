"""A Flink cluster on this machine alone: a JobManager, two TaskManagers, and Beam's job server in front of them.

Flink's own ports are bound to loopback, and logs and spilled data are kept in a private folder: what travels through a
cluster while records are tabulated is as confidential as the records. Beam's job server (8099) and the ports by which
its runner speaks with Python workers listen on every interface, and Beam has no setting against it: on a machine that
others can reach, a firewall must close them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from das.errors import Problem, ProblemsFound, UsageError
from das.release.files import make_private
from pipelines.jars import cache_folder, jars, java

__all__ = ["JOB_ENDPOINT", "TASK_MANAGERS", "Process", "beam_that_runs", "down", "is_up", "pid_of", "up"]

JOB_ENDPOINT = "localhost:8099"
REST = "localhost:8081"
RPC_PORT = 6123
JOB_SERVER = "jobserver"
RELEASE = rb"/flink-[^/]+-beam-([^/]+)/"
"""Part of the class path of everything that is started from :func:`pipelines.jars.jars`."""
START_SECONDS = 120
STOP_SECONDS = 20
FLINK = "org.apache.flink.runtime"
TASK_MANAGER = f"{FLINK}.taskexecutor.TaskManagerRunner"
TASK_MANAGERS = ("taskmanager-1", "taskmanager-2")

OPENED = (
    *("java.lang", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.text", "java.time", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks"),
    *("sun.net.util", "sun.nio.ch"),
)
"""Packages of Java's own into which Flink looks."""

CONFIG: Mapping[str, object] = {
    "jobmanager.rpc.address": "localhost",
    "jobmanager.rpc.port": RPC_PORT,
    "jobmanager.bind-host": "localhost",
    "rest.address": "localhost",
    "rest.bind-address": "localhost",
    "rest.port": int(REST.split(":")[1]),
    "taskmanager.host": "localhost",
    "taskmanager.bind-host": "localhost",
    # Two slots each, and two in use: work spreads over both TaskManagers, and one alone can finish it.
    "taskmanager.numberOfTaskSlots": 2,
    "taskmanager.load-balance.mode": "SLOTS",
    "parallelism.default": 2,
    "taskmanager.cpu.cores": 1.0,
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "64m",
    "taskmanager.memory.task.heap.size": "512m",
    "taskmanager.memory.task.off-heap.size": "64m",
    "taskmanager.memory.managed.size": "256m",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "128m",
    "taskmanager.memory.jvm-overhead.max": "128m",
    "classloader.resolve-order": "parent-first",  # Beam's classes are loaded once, and not with each job
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 6,
    "restart-strategy.fixed-delay.delay": "6 s",  # overrides the job's own; must exceed the workers' cache
    "heartbeat.interval": 3000,
    "heartbeat.timeout": 30000,
    "slot.request.timeout": 60000,
}

LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5p %c{1} - %m%n
"""


@dataclass(frozen=True, slots=True)
class Process:
    """One Java process of the cluster."""

    name: str
    main: str
    heap: str
    arguments: tuple[str, ...] = ()


def _folder() -> Path:
    return cache_folder() / "flink-cluster"


def _processes() -> tuple[Process, ...]:
    conf = ("--configDir", str(_folder()))
    server = {
        "job-host": "localhost",
        "job-port": JOB_ENDPOINT.split(":")[1],
        "artifact-port": "0",
        "expansion-port": "0",
        "flink-master": REST,
        "flink-conf-dir": str(_folder()),
        "artifacts-dir": str(_folder() / "artifacts"),
    }
    return (
        Process("jobmanager", f"{FLINK}.entrypoint.StandaloneSessionClusterEntrypoint", "384m", conf),
        *(Process(name, TASK_MANAGER, "640m", conf) for name in TASK_MANAGERS),
        Process(
            JOB_SERVER,
            "org.apache.beam.runners.flink.FlinkJobServerDriver",
            "384m",
            tuple(f"--{name}={value}" for name, value in server.items()),
        ),
    )


def up() -> None:
    """Start whatever of the cluster does not run, and wait until it can take work."""
    classes, command = jars(), java()
    missing = [process for process in _processes() if pid_of(process.name) is None]
    _require_free_ports({process.name for process in missing})
    make_private(_folder().parent)
    make_private(_folder())
    for name in ("tmp", "artifacts"):
        make_private(_folder() / name)
    config = {**CONFIG, "io.tmp.dirs": _folder() / "tmp"}
    (_folder() / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in config.items()))
    (_folder() / "log4j2.properties").write_text(LOGGING)
    for process in missing:
        _start(process, command, classes)
    deadline = time.monotonic() + START_SECONDS
    while not is_up():
        dead = [process.name for process in _processes() if pid_of(process.name) is None]
        if dead or time.monotonic() > deadline:
            reason = "ended at once" if dead else f"did not get ready within {START_SECONDS} s"
            where = dead[0] if dead else "the cluster"
            raise UsageError(Problem(where, reason, f"see its log in {_folder()}"))
        time.sleep(0.5)


def down() -> None:
    """Stop the cluster."""
    pids = [pid for process in _processes() if (pid := pid_of(process.name))]
    for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
        deadline = time.monotonic() + seconds
        for pid in filter(_is_ours, pids):
            os.kill(pid, number)
        while any(map(_is_ours, pids)) and time.monotonic() < deadline:
            time.sleep(0.2)
    for process in _processes():
        _pid_file(process.name).unlink(missing_ok=True)


def is_up() -> bool:
    """Whether all of it runs and can take work."""
    overview = _ask("overview")
    return overview.get("taskmanagers", 0) >= len(TASK_MANAGERS) and _listens(JOB_ENDPOINT)


def pid_of(name: str) -> int | None:
    """The number of a process of the cluster, if it runs."""
    try:
        pid = int(_pid_file(name).read_text())
    except (OSError, ValueError):
        return None
    return pid if _is_ours(pid) else None


def beam_that_runs() -> str | None:
    """The release of Beam that this machine's job server was started from, if one runs; it cannot be asked itself."""
    pid = pid_of(JOB_SERVER)
    found = pid and re.search(RELEASE, _command_of(pid))
    return found[1].decode() if found else None


def _start(process: Process, command: str, classes: Path) -> None:
    flags = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    flags += [f"-Xmx{process.heap}", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={_folder() / 'tmp'}"]
    flags += [f"-Dlog4j.configurationFile=file:{_folder() / 'log4j2.properties'}", "-cp", f"{classes}/*"]
    argv = [command, *flags, process.main, *process.arguments]
    files = (
        (0, os.devnull, os.O_RDONLY),
        (1, str(_folder() / f"{process.name}.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    )
    actions = [(os.POSIX_SPAWN_OPEN, *file, 0o600) for file in files] + [(os.POSIX_SPAWN_DUP2, 1, 2)]
    pid = os.posix_spawn(command, argv, os.environ, file_actions=actions, setsid=True)  # it is to outlive this process
    _pid_file(process.name).write_text(str(pid))


def _require_free_ports(starting: set[str]) -> None:
    ports = {"jobmanager": (REST, f"localhost:{RPC_PORT}"), JOB_SERVER: (JOB_ENDPOINT,)}
    taken = [address for name in starting for address in ports.get(name, ()) if _listens(address)]
    if taken:
        raise UsageError(Problem(taken[0], "another program listens there", "stop it, or use its cluster"))


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((host, int(port))) == 0


def _ask(what: str) -> dict[str, int]:
    try:
        with urllib.request.urlopen(f"http://{REST}/{what}", timeout=5) as answer:
            found: dict[str, int] = json.load(answer)
            return found
    except (OSError, ValueError):
        return {}


def _pid_file(name: str) -> Path:
    return _folder() / f"{name}.pid"


def _command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _is_ours(pid: int) -> bool:
    """Whether the process lives and is one of the cluster's; another may have got the number since."""
    try:
        command = _command_of(pid).split(b"\0")
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z" and any(process.main.encode() in command for process in _processes())


@click.command()
@click.argument("action", type=click.Choice(["up", "down", "status"]))
def main(action: str) -> None:
    """Start, stop or show a Flink cluster on this machine."""
    try:
        if action == "up":
            up()
        elif action == "down":
            down()
    except ProblemsFound as error:
        for problem in error.problems:
            click.echo(f"flink: {problem}", err=True)
        sys.exit(error.exit_code)
    running = {process.name: pid_of(process.name) for process in _processes()}
    for name, pid in running.items():
        click.echo(f"{name:14} {f'runs ({pid})' if pid else 'does not run'}")
    if action == "status":
        sys.exit(0 if is_up() else 1)


if __name__ == "__main__":
    main()
