"""Bundles that fail or run twice, a disk that fills up, workers that are left over: the same bytes, and one charge."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import grpc
import pytest

import das
from das.errors import Interrupted, UsageError
from das.runner import find_runner
from das.storage.ledger import Ledger
from pipelines.runners import is_elsewhere, preflight, runner_and_options
from pipelines.stages.estimate import WriteShard
from pipelines.stages.measure import MeasureShard
from pipelines.workers import lifetime
from pipelines.workers.entry_point import token_of

if TYPE_CHECKING:
    from conftest import Processes, World

Tree = Callable[[Path], dict[str, str]]
EMBEDDED = (
    *("--runner=flink", "--job_endpoint=embed", "--environment_type=LOOPBACK", "--environment_config="),
    "--trust-network",
)
"""The runner that talks to Flink, talking to a job server of Beam's own within this process: no Java."""
SPENT_ONCE = ["open", "reserve", "commit"]


def kinds(config: Path) -> list[str]:
    return [entry.kind for entry in Ledger.open(config.parent / "ledger.sqlite").entries()]


def failing(step: type[beam.DoFn], times: int) -> tuple[Callable[..., Iterator[Any]], list[int]]:
    """The step's work, which fails the first few times when all of it is done, and a list that grows with each."""
    process, failed = step.process, []

    def done_in_vain(self: Any, element: Any) -> Iterator[Any]:
        for made in process(self, element):
            if len(failed) < times:
                failed.append(1)
                raise RuntimeError("lost after the file was written")
            yield made

    return done_in_vain, failed


@pytest.mark.slow
@pytest.mark.usefixtures("unconfined")
@pytest.mark.parametrize(("step", "stage"), [(MeasureShard, "measure"), (WriteShard, "estimate")])
def test_a_bundle_that_fails_twice_after_it_wrote(
    step: type[beam.DoFn],
    stage: str,
    country: World,
    starter: Path,
    tmp_path: Path,
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work, failed = failing(step, 2)
    monkeypatch.setattr(step, "process", work)
    plan, out = das.load(starter), tmp_path / "out"
    for _ in range(2):
        with pytest.raises(RuntimeError):
            find_runner().run(plan, out, upto=stage, testing_key="country")
    find_runner().run(plan, out, upto=stage, testing_key="country")
    assert len(failed) == 2
    written = tree(out / "release")
    assert f"{'measurements' if stage == 'measure' else 'counts'}/village.parquet" in written
    assert written.items() <= tree(country.release).items()


def test_a_real_run_whose_bundle_fails_is_charged_once(
    starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was drawn, and lost with the bundle, is drawn again as it was."""
    work, _ = failing(MeasureShard, 1)
    seen: list[bytes] = []

    def keep(self: Any, element: Any) -> Iterator[Any]:
        try:
            yield from work(self, element)
        finally:
            seen.append(element.path(self.work.partial).read_bytes())

    monkeypatch.setattr(MeasureShard, "process", keep)
    with pytest.raises(RuntimeError):
        find_runner().run(das.load(starter), tmp_path / "out", upto="measure")
    assert kinds(starter) == ["open", "reserve"]
    find_runner().run(das.load(starter), tmp_path / "out", upto="measure")
    assert kinds(starter) == SPENT_ONCE
    drawn = [path.read_bytes() for path in (tmp_path / "out" / "release" / "measurements").glob("*.parquet")]
    assert seen[0] in drawn
    assert len(set(seen)) == len(drawn)


COMMITS = {
    "tabulate": ".histograms.partial/village.parquet",
    "measure": ".measurements.partial/village.parquet",
    "estimate": ".counts.partial/village.parquet",
    "publish": ".tables.partial/village-total.parquet",
}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("stage", COMMITS)
def test_a_disk_that_is_full_when_a_stage_commits(
    stage: str, small_disk: Path, processes: Processes, starter: Path, country: World, tree: Tree
) -> None:
    """The run is stopped as it begins to commit, the disk filled to the last byte, and the run let go."""
    out, ballast = small_disk / "out", small_disk / "ballast"
    command = ["run", starter, "--out", out, "--testing-key", "country"]
    before = (("rename", COMMITS[stage]), ("chmod", COMMITS[stage]))
    process, outputs = processes.start(command, folder=str(out), before=before, number=signal.SIGSTOP)
    until(lambda: stopped(process.pid) or _state(process.pid) is None)
    fill(ballast)
    for pid in stopped(process.pid):
        os.kill(pid, signal.SIGCONT)
    ended = processes.end(process, outputs)
    assert ended.code == 6, ended.stderr
    assert "there is no room on the disk" in ended.stderr
    assert "Traceback" not in ended.stderr
    ballast.unlink()
    again = processes(*command)
    assert again.code == 0, again.stderr
    assert tree(out / "release") == tree(country.release)
    assert kinds(starter) == ["testing"]


def stopped(root: int) -> list[int]:
    """Which processes of a run are stopped: the command itself, or one that it started behind the wall."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has just ended
        parents[int(path.parent.name)] = int(fields[1])

    def is_of_the_run(pid: int) -> bool:
        return pid == root or (pid in parents and is_of_the_run(parents[pid]))

    return [pid for pid in parents if is_of_the_run(pid) and _state(pid) == "T"]


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def _state(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def until(what: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Runners outside this process: what is checked before a run, and the message when they fail.


@pytest.mark.slow
def test_a_job_server_gives_the_same_bytes_and_leaves_nothing_behind(
    country: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: Tree
) -> None:
    """Also where the current folder of the workers is another, and the output folder is named by a relative path."""
    process = preflight.ReportWorker.process

    def elsewhere(self: preflight.ReportWorker, number: int) -> Iterator[tuple[int, int]]:
        os.chdir("/")
        return process(self, number)

    monkeypatch.setattr(preflight.ReportWorker, "process", elsewhere)
    monkeypatch.chdir(tmp_path)
    find_runner().run(country.plan, Path("out"), testing_key="country", options=EMBEDDED)
    assert tree(tmp_path / "out" / "release") == tree(country.release)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in country.out.iterdir()}


@pytest.mark.parametrize("cluster", ["flink", "spark"])
def test_no_job_server_listens(cluster: str, starter: Path, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        options = [f"--runner={cluster}", f"--job_endpoint=localhost:{unused.getsockname()[1]}"]
        remedy = f"no job server can be reached there; start one with `bash scripts/{cluster} up`, or name another"
        with pytest.raises(UsageError, match=remedy):
            das.run(das.load(starter), out=tmp_path / "out", options=options)
    assert not (starter.parent / "ledger.sqlite").exists()


@pytest.mark.slow
def test_another_program_listens(starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "DESCRIBE_SECONDS", 1)
    with socket.create_server(("localhost", 0)) as mute:
        options = ["--runner=flink", f"--job_endpoint=localhost:{mute.getsockname()[1]}"]
        with pytest.raises(UsageError, match="is not a Beam job server"):
            das.run(das.load(starter), out=tmp_path / "out", options=options)


@pytest.mark.slow
def test_workers_that_do_not_see_the_folder(starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = preflight.ReportWorker.process

    def elsewhere(self: preflight.ReportWorker, number: int) -> Iterator[tuple[int, int]]:
        self.out = "/another/machine"
        return process(self, number)

    monkeypatch.setattr(preflight.ReportWorker, "process", elsewhere)
    with pytest.raises(UsageError, match=r"does not see the output folder .*out; choose a folder that this machine"):
        das.run(das.load(starter), out=tmp_path / "out", options=EMBEDDED)
    assert not (starter.parent / "ledger.sqlite").exists()


def test_workers_of_other_versions(tmp_path: Path) -> None:
    report = preflight.versions() | {"Python": "3.12", "apache-beam": "2.0.0", "host": "far", "sees": "True"}
    problems = list(preflight._unfit(report, tmp_path))
    assert [problem.where for problem in problems] == ["worker on far", "worker on far"]
    assert problems[0].reason.startswith("has Python 3.12, and this machine 3.")
    assert "requirements.lock" in problems[1].remedy


def test_workers_of_another_user_that_cannot_write_or_read(tmp_path: Path) -> None:
    fit = {"host": "far", "sees": "True", "writes": "True", "unread": "", "uid": str(os.geteuid())}
    assert list(preflight._unfit(preflight.versions() | fit, tmp_path)) == []
    unfit = fit | {"writes": "False", "unread": "/data/people.csv", "uid": str(os.geteuid() + 1)}
    writes, user, reads = preflight._unfit(preflight.versions() | unfit, tmp_path)
    assert writes.reason == f"cannot write in the output folder {tmp_path}"
    assert user.reason == f"runs as user {os.geteuid() + 1}, and das as user {os.geteuid()}"
    assert reads.reason == "cannot read the input file /data/people.csv"


def test_what_a_worker_reports_is_what_it_can_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[dict[str, str]] = []
    counter = SimpleNamespace(inc=lambda: None)
    monkeypatch.setattr(preflight.Metrics, "counter", lambda _, name: said.append(json.loads(name)) or counter)
    (tmp_path / "probe").touch()
    (tmp_path / "input.csv").touch()
    for out, inputs in ((tmp_path, ["input.csv"]), (tmp_path / "none", ["input.csv", "other.csv"])):
        list(preflight.ReportWorker(str(out), "probe", [str(tmp_path / name) for name in inputs]).process(0))
    here, there = said
    assert (here["sees"], here["writes"], here["unread"]) == ("True", "True", "")
    assert (there["sees"], there["writes"], there["unread"]) == ("False", "False", str(tmp_path / "other.csv"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input.csv", "probe"], "nothing is left behind"


def test_the_small_job_is_given_as_long_as_was_asked(
    starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []

    class Endless:
        def run(self) -> Endless:
            return self

        def wait_until_finish(self, duration: int) -> str:
            given.append(duration)
            return "RUNNING"

        def cancel(self) -> None:
            given.append(0)

        def __or__(self, _: object) -> Endless:
            return self

    monkeypatch.setattr(preflight.beam, "Pipeline", lambda **_: Endless())
    with pytest.raises(UsageError, match=r"within 7 s; .* --preflight_seconds=N"):
        das.run(das.load(starter), out=tmp_path / "out", options=[*EMBEDDED, "--preflight_seconds=7"])
    assert given == [7000, 0]


@pytest.mark.slow
def test_a_runner_that_fails_the_small_job(starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: preflight.ReportWorker, number: int) -> Iterator[tuple[int, int]]:
        raise RuntimeError("no")

    monkeypatch.setattr(preflight.ReportWorker, "process", fail)
    with pytest.raises(UsageError, match="the runner: failed a small job"):
        das.run(das.load(starter), out=tmp_path / "out", options=EMBEDDED)


def test_a_runner_that_gives_up_can_be_tried_again() -> None:
    given_up = preflight.failure_of(RuntimeError("Pipeline x failed in state FAILED: no slots"))
    assert isinstance(given_up, Interrupted)
    assert "`bash scripts/flink up` starts what is missing" in str(given_up)
    given_up = preflight.failure_of(RuntimeError("Pipeline x failed in state FAILED: no slots"), ["--runner=spark"])
    assert "`bash scripts/spark up` starts what is missing" in str(given_up)
    step = RuntimeError("Pipeline x failed in state FAILED: Traceback (most recent call last)")
    assert preflight.failure_of(step) is step
    for lost in (grpc.FutureTimeoutError(), ConnectionRefusedError()):  # the job server went between two stages
        assert isinstance(preflight.failure_of(lost), Interrupted)


def test_only_runners_outside_this_process_are_checked() -> None:
    assert not is_elsewhere(["--runner=in-memory"])
    assert not is_elsewhere(["--runner=multi-process"])
    assert is_elsewhere(["--runner=flink"])
    assert is_elsewhere(["--runner=spark"])


def test_the_defaults_of_flink_give_way_to_the_command_line() -> None:
    _, options = runner_and_options(["--runner=flink", "--parallelism=7"])
    found = options.get_all_options(drop_default=True)
    assert (found["parallelism"], found["number_of_execution_retries"]) == (7, 6)


def test_the_defaults_of_spark_are_its_own_and_give_way_to_the_command_line() -> None:
    _, options = runner_and_options(["--runner=Spark"])
    found = options.get_all_options(drop_default=True)
    assert (found["job_endpoint"], found["environment_type"]) == ("localhost:8199", "PROCESS")
    assert found["environment_config"].endswith('das-worker"}')
    assert "number_of_execution_retries" not in found
    _, options = runner_and_options(["--runner=spark", "--job_endpoint=far:8099"])
    assert options.get_all_options(drop_default=True)["job_endpoint"] == "far:8099"


# A worker ends with the run that it was started for.


@pytest.mark.slow
def test_a_token_holds_until_its_run_ends_or_the_next_begins(tmp_path: Path) -> None:
    with lifetime.token_in(tmp_path) as first:
        assert lifetime.holds(first)
        with lifetime.token_in(tmp_path) as second:
            assert (lifetime.holds(first), lifetime.holds(second)) == (False, True)
    assert not lifetime.holds(second)
    assert not list(tmp_path.iterdir())
    assert token_of("{}") is None


@pytest.mark.slow
def test_a_worker_exits_when_its_token_is_gone(tmp_path: Path) -> None:
    ended = threading.Event()
    with lifetime.token_in(tmp_path) as token:
        lifetime.exit_when_run_ends(token, ended.set)
        assert not ended.wait(3 * lifetime.CHECK_EVERY_SECONDS)
    assert ended.wait(10)


def test_a_worker_ends_with_its_parent() -> None:
    code = (
        "import time, pipelines.workers.lifetime as l; l.exit_when_run_ends(None); print(1, flush=True); time.sleep(99)"
    )
    shell = subprocess.Popen(
        ["sh", "-c", '"$0" -c "$1" & echo $!; wait', sys.executable, code], stdout=subprocess.PIPE, text=True
    )
    assert shell.stdout is not None
    worker = int(shell.stdout.readline())
    assert shell.stdout.readline() == "1\n"
    shell.kill()
    until(lambda: _state(worker) in (None, "Z"))
    shell.communicate()


def test_the_command_that_workers_are_started_with_is_installed() -> None:
    assert shutil.which("das-worker", path=str(Path(sys.executable).parent))
