"""A real Flink cluster on loopback, and processes killed in the middle: the same bytes as in memory, and one charge.

The workers are das-worker with a few orders from the test: to say where they are, to wait there, to fail.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import das
from das.storage.ledger import Ledger
from das.storage.staging import verify
from pipelines.runners.clusters import FLINK as CLUSTER
from pipelines.runners.flink import TASK_MANAGERS

if TYPE_CHECKING:
    from conftest import World

Tree = Callable[[Path], dict[str, str]]
FLINK = ("--runner=flink",)
DAS = str(Path(sys.executable).with_name("das"))
TESTING = ("--testing-key", "country")
FOLDERS: dict[str, tuple[str, ...]] = {
    "measure": ("facts/", "measurements/"),
    "estimate": ("facts/", "measurements/", "estimates/", "counts/"),
    "run": ("",),
}
"""What each command makes of a release."""

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

WORKER = """\
#!@PYTHON@
import functools, os, time
from pathlib import Path
from pipelines.workers import entry_point
from pipelines.stages import estimate
from pipelines.stages import measure
from pipelines.wall import confinement

ORDERS = Path("@ORDERS@")
confinement.SCRATCH += (str(ORDERS),)  # or it could not take orders behind the wall

def obedient(kind, process):
    @functools.wraps(process)
    def obey(self, *arguments):
        (ORDERS / f"{kind}-{os.getpid()}").touch()
        while (ORDERS / f"hold-{kind}").exists():
            time.sleep(0.05)
        for made in process(self, *arguments):
            for order in ORDERS.glob(f"fail-{kind}-*"):
                order.unlink()
                raise RuntimeError("as ordered")
            yield made
    return obey

for kind, step in {"measure": measure.MeasureShard, "estimate": estimate.EstimateShard}.items():
    step.process = obedient(kind, step.process)
entry_point.main()
"""


@dataclass(frozen=True)
class Orders:
    """Orders to workers as files in a folder, and the files by which workers report where they are."""

    folder: Path

    def give(self, order: str) -> None:
        (self.folder / order).touch()

    def take_back(self, order: str) -> None:
        (self.folder / order).unlink()

    def worker_in(self, step: str, process: subprocess.Popen[str]) -> int:
        """Wait until a worker that still lives is in a step; its process id."""
        while True:
            for report in self.folder.glob(f"{step}-*"):
                pid = int(report.name.rpartition("-")[2])
                if Path(f"/proc/{pid}").exists():
                    return pid
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)


@dataclass(frozen=True)
class Run:
    """A release of the starter on the cluster, by workers that take orders."""

    config: Path
    out: Path
    orders: Orders
    key: tuple[str, ...] = TESTING
    verb: str = "run"

    @property
    def command(self) -> list[str]:
        worker = json.dumps({"command": str(self.orders.folder / "worker")})
        run = [DAS, self.verb, str(self.config), "--out", str(self.out), *self.key]
        return [*run, "--", *FLINK, f"--environment_config={worker}"]

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def check(self, tree: Tree, expected: World) -> None:
        """What there is, is what there should be, and nothing is left over."""
        folders = FOLDERS[self.verb]
        wanted = {name: digest for name, digest in tree(expected.release).items() if name.startswith(folders)}
        assert wanted
        assert tree(self.out / "release") == wanted
        assert self.kinds() == ["testing"]

    def kinds(self) -> list[str]:
        return [entry.kind for entry in Ledger.open(self.config.parent / "ledger.sqlite").entries()]


@pytest.fixture
def run(flink: None, starter: Path, tmp_path: Path) -> Iterator[Run]:
    CLUSTER.up()  # whatever the test before has killed
    orders = tmp_path / "orders"
    orders.mkdir()
    worker = orders / "worker"
    worker.write_text(WORKER.replace("@PYTHON@", sys.executable).replace("@ORDERS@", str(orders)))
    worker.chmod(0o755)
    yield Run(starter, tmp_path / "out", Orders(orders))
    for held in orders.glob("hold-*"):
        held.unlink()


def parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"PPid:\s*(\d+)", status)
    assert found
    return int(found[1])


def done(process: subprocess.Popen[str], code: int = 0) -> str:
    _, stderr = process.communicate(timeout=400)
    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    return stderr


def gone(worker: int) -> None:
    """Wait until a worker has ended, which still waits for its orders."""
    deadline = time.monotonic() + 60
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_cluster_runs_the_beam_that_is_installed(flink: None) -> None:
    assert CLUSTER.beam_that_runs() == version("apache-beam")


def test_the_demo_gives_the_same_bytes(flink: None, town: World, tmp_path: Path, tree: Tree) -> None:
    das.run(town.plan, out=tmp_path / "out", testing_key="town", options=FLINK)
    assert tree(tmp_path / "out" / "release") == tree(town.release)


def test_a_taskmanager_killed_while_it_measures_and_another_while_it_estimates(
    run: Run, country: World, tree: Tree
) -> None:
    """Each time the other one has room for all of the work."""
    for step in ("measure", "estimate"):
        run.orders.give(f"hold-{step}")
    process = run.start()
    for step in ("measure", "estimate"):
        worker = run.orders.worker_in(step, process)
        CLUSTER.up()
        killed = parent_of(worker)
        assert killed in {CLUSTER.pid_of(name) for name in TASK_MANAGERS}
        os.kill(killed, signal.SIGKILL)
        run.orders.take_back(f"hold-{step}")
    done(process)
    run.check(tree, country)


def test_a_worker_killed_and_bundles_that_fail_twice_in_a_real_run(run: Run) -> None:
    run = replace(run, key=(), verb="estimate")
    for order in ("fail-measure-1", "fail-measure-2", "hold-estimate"):
        run.orders.give(order)
    process = run.start()
    worker = run.orders.worker_in("estimate", process)
    os.kill(worker, signal.SIGKILL)
    run.orders.take_back("hold-estimate")
    done(process)
    assert not list(run.orders.folder.glob("fail-*"))
    assert run.kinds() == ["open", "reserve", "commit"]
    for folder in ("measurements", "counts"):
        assert verify(run.out / "release" / folder) == []


def test_the_job_server_killed_and_the_command_repeated(run: Run, country: World, tree: Tree) -> None:
    """Its job goes on in the cluster, with workers whose run is gone: they exit before the next run begins."""
    run = replace(run, verb="estimate")
    run.orders.give("hold-estimate")
    process = run.start()
    orphan = run.orders.worker_in("estimate", process)
    server = CLUSTER.pid_of("jobserver")
    assert server
    os.kill(server, signal.SIGKILL)
    assert "the runner: stopped answering while a stage ran" in done(process, code=6)
    drawn = tree(run.out / "release" / "measurements")
    CLUSTER.up()
    again = run.start()
    gone(orphan)
    run.orders.worker_in("estimate", again)
    run.orders.take_back("hold-estimate")
    done(again)
    assert tree(run.out / "release" / "measurements") == drawn
    run.check(tree, country)


def test_the_command_killed_and_repeated(run: Run, country: World, tree: Tree) -> None:
    run = replace(run, verb="measure")
    run.orders.give("hold-measure")
    process = run.start()
    orphan = run.orders.worker_in("measure", process)
    process.kill()
    process.communicate()
    again = run.start()
    gone(orphan)
    run.orders.worker_in("measure", again)
    run.orders.take_back("hold-measure")
    done(again)
    run.check(tree, country)


def test_workers_that_cannot_be_started(run: Run) -> None:
    (run.orders.folder / "worker").unlink()
    assert "the runner: failed a small job" in done(run.start(), code=2)
    assert not (run.config.parent / "ledger.sqlite").exists()


def test_a_disk_that_a_worker_finds_full(run: Run, country: World, tree: Tree) -> None:
    run = replace(run, verb="measure")
    run.out.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(run.out)], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        run.orders.give("hold-measure")
        process = run.start()
        run.orders.worker_in("measure", process)
        ballast = run.out / "release" / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        run.orders.take_back("hold-measure")
        assert "there is no room on the disk" in done(process, code=6)
        ballast.unlink()
        done(run.start())
        run.check(tree, country)
    finally:
        subprocess.run(["umount", "--lazy", str(run.out)], check=True)
