"""Killed at any moment, the same command continues: nothing is drawn or charged twice, and the bytes are the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from das.release.manifest import verify_release
from das.storage.layout import Layout
from das.storage.ledger import Ledger
from das.storage.staging import verify

if TYPE_CHECKING:
    from conftest import Processes, World

Tree = Callable[[Path], dict[str, str]]
Before = int | tuple[tuple[str, str], ...]
TESTING = ("--testing-key", "country")
INTERRUPTED = 6
MULTI_PROCESS = ("--", "--runner=multi-process", "--direct_num_workers=2")

MOMENTS: dict[str, tuple[tuple[str, str], ...]] = {
    "claiming the folder": (("rename", "/run.json"),),
    "writing a histogram": (("rename", ".histograms.partial/district.parquet"),),
    "histograms made durable": (("rename", "/histograms"),),
    "the key made durable": (("rename", "/run.key"),),
    "the key durable, nothing charged": (("rename", "/run.key"), ("ledger", "/ledger.sqlite")),
    "charged, nothing drawn": (("rename", "/run.key"), ("mkdir", "/.facts.partial")),
    "facts made durable": (("rename", "/facts"),),
    "writing a measurement": (("rename", ".measurements.partial/village.parquet"),),
    "measurements made durable": (("rename", "/measurements"),),
    "measurements durable, charge not committed": (("rename", "/measurements"), ("ledger", "/ledger.sqlite")),
    "committed, key overwritten": (("remove", "/run.key"),),
    "writing counts": (("rename", ".counts.partial/district.parquet"),),
    "counts made durable": (("rename", "/counts"),),
    "writing a table": (("rename", "/village-total.csv"),),
    "records durable, tables not": (("rename", "/tables"),),
    "writing the statement": (("rename", "/privacy.html"),),
    "writing the manifest": (("rename", "/manifest.json"),),
}
QUICK = (  # with a real key what is spent matters, which is over when `measure` is
    "claiming the folder",
    "the key durable, nothing charged",
    "measurements durable, charge not committed",
)
LONG = tuple((moment, key) for moment in MOMENTS for key in ((), TESTING))


@dataclass(frozen=True)
class Interrupted:
    """Kills a run, runs the same command again, and checks what must be true in the end."""

    processes: Processes
    tree: Tree
    expected: dict[str, str]

    def check(self, config: Path, out: Path, key: tuple[str, ...], before: Before, verb: str = "run") -> None:
        command = (verb, config, "--out", out, *key)
        killed = self.processes(*command, folder=str(config.parents[1]), before=before)
        # A process behind the wall may have been killed instead; then the command says that it was interrupted.
        assert killed.code in (-signal.SIGKILL, INTERRUPTED), killed.stderr
        measurements = out / "release" / "measurements"
        drawn = self.tree(measurements) if measurements.exists() else None
        finished = self.processes(*command)
        assert (finished.code, "Traceback" in finished.stderr) == (0, False), finished.stderr
        if drawn is not None:
            assert self.tree(measurements) == drawn
        self.check_measured(config, out, key)
        if verb == "run":
            self.check_finished(out, key)

    def check_measured(self, config: Path, out: Path, key: tuple[str, ...]) -> None:
        assert verify(out / "release" / "measurements") == []
        kinds = [entry.kind for entry in Ledger.open(config.parent / "ledger.sqlite").entries()]
        assert kinds == (["testing"] if key else ["open", "reserve", "commit"])
        assert not list((out / "confidential").glob("*run.key*"))

    def check_finished(self, out: Path, key: tuple[str, ...]) -> None:
        release = self.tree(out / "release")
        assert verify_release(Layout(out).release) == []
        assert release.keys() == self.expected.keys()  # no partial folder, no unfinished file
        if key:
            assert release == self.expected


@pytest.fixture
def interrupted(processes: Processes, tree: Tree, country: World) -> Interrupted:
    return Interrupted(processes, tree, tree(country.release))


@pytest.mark.parametrize("moment", QUICK)
def test_killed_at(moment: str, interrupted: Interrupted, starter: Path, tmp_path: Path) -> None:
    interrupted.check(starter, tmp_path / "out", (), MOMENTS[moment], "measure")


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "key"), LONG)
def test_killed_at_any_boundary(
    moment: str, key: tuple[str, ...], interrupted: Interrupted, starter: Path, tmp_path: Path
) -> None:
    interrupted.check(starter, tmp_path / "out", key, MOMENTS[moment])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("key", [(), TESTING], ids=["real", "testing"])
def test_killed_before_every_eleventh_change_to_the_disk(
    key: tuple[str, ...], interrupted: Interrupted, starter: Path, tmp_path: Path
) -> None:
    """Wherever that falls: in the middle of a commit, between a chmod and a rename. Two kinds of key, other changes."""
    log = tmp_path / "log"
    shutil.copytree(starter.parent, tmp_path / "whole" / "input")
    config = tmp_path / "whole" / "input" / "config.toml"
    job = {"folder": str(tmp_path / "whole"), "log": str(log)}
    assert interrupted.processes("run", config, "--out", tmp_path / "whole" / "out", *key, **job).code == 0
    changes = int(log.read_text())
    assert changes > 100
    for number in range(5 * bool(key), changes, 11):
        folder = tmp_path / str(number)
        shutil.copytree(starter.parent, folder / "input")
        interrupted.check(folder / "input" / "config.toml", folder / "out", key, number)
        shutil.rmtree(folder)


@pytest.mark.slow
def test_killed_twice_and_again(interrupted: Interrupted, starter: Path, tmp_path: Path) -> None:
    """The second kill falls on the work that takes up after the first."""
    command = ("measure", starter, "--out", tmp_path / "out")
    for moment in ("writing a measurement", "facts made durable"):
        ended = interrupted.processes(*command, folder=str(tmp_path), before=MOMENTS[moment])
        assert ended.code == -signal.SIGKILL
    interrupted.check(starter, tmp_path / "out", (), MOMENTS["committed, key overwritten"], "measure")


@pytest.mark.parametrize(
    ("number", "moment"), [(signal.SIGINT, "writing a measurement"), (signal.SIGTERM, "histograms made durable")]
)
def test_a_signal_ends_a_run_that_can_be_continued(
    number: signal.Signals, moment: str, interrupted: Interrupted, starter: Path, tmp_path: Path
) -> None:
    """In a step that the runner runs, and between such steps."""
    command = ("measure", starter, "--out", tmp_path / "out")
    ended = interrupted.processes(*command, folder=str(tmp_path), before=MOMENTS[moment], number=number)
    assert ended.code == 6
    assert ended.stderr.splitlines()[-1] == "das: interrupted: the run can be continued; run the same command again"
    assert "Traceback" not in ended.stderr
    assert interrupted.processes(*command).code == 0
    interrupted.check_measured(starter, tmp_path / "out", ())


def test_a_run_that_lost_its_key_draws_nothing(processes: Processes, starter: Path, tmp_path: Path) -> None:
    out, moment = tmp_path / "out", MOMENTS["writing a measurement"]
    assert processes("measure", starter, "--out", out, folder=str(tmp_path), before=moment).code == -9
    key = out / "confidential" / "run.key"
    assert (stat.S_IMODE(key.stat().st_mode), key.stat().st_size) == (0o600, 32)
    key.unlink()
    refused = processes("measure", starter, "--out", out)
    assert refused.code == 5
    assert "run.key" in refused.stderr
    assert "begin again in another folder" in refused.stderr
    assert not key.exists()
    assert not (out / "release" / "measurements").exists()
    assert [e.kind for e in Ledger.open(starter.parent / "ledger.sqlite").entries()] == ["open", "reserve"]


def test_a_run_whose_input_changed_is_refused_before_it_draws(
    processes: Processes, starter: Path, tmp_path: Path
) -> None:
    """The same noise on two inputs would show their difference."""
    out, people = tmp_path / "out", starter.parent / "people.csv"
    command = ("measure", starter, "--out", out)
    killed = processes(*command, folder=str(tmp_path), before=MOMENTS["writing a measurement"])
    assert killed.code == -9
    content = people.read_text()
    people.write_text(content + "N11,f,65+\n")
    refused = processes(*command)
    assert refused.code == 5
    assert "restore the plan and the input it began with" in refused.stderr
    assert not (out / "release" / "measurements").exists()
    people.write_text(content)
    assert processes(*command).code == 0


def test_a_run_that_reads_its_input_otherwise_is_refused_before_it_draws(
    processes: Processes, starter: Path, tmp_path: Path
) -> None:
    """Labels that change places make other counts of the same files: shards of the two must never meet."""
    out, config = tmp_path / "out", starter.read_text()
    command = ("measure", starter, "--out", out)
    killed = processes(*command, folder=str(tmp_path), before=MOMENTS["writing a measurement"])
    assert killed.code == -9
    geocode = 'geocode = "village"\n'
    assert config.count(geocode) == 1
    starter.write_text(config.replace(geocode, geocode + 'values = { sex = { f = "m", m = "f" } }\n'))
    refused = processes(*command)
    assert refused.code == 5
    assert "restore the plan and the input it began with" in refused.stderr
    assert not (out / "release" / "measurements").exists()
    starter.write_text(config)
    assert processes(*command).code == 0


@pytest.mark.slow
def test_a_geography_mended_after_an_interruption_is_used_as_a_whole(
    processes: Processes, starter: Path, tmp_path: Path
) -> None:
    """Facts of the old spine must not be joined to histograms of the new one."""
    out, places = tmp_path / "out", starter.parent / "places.csv"
    command = ("measure", starter, "--out", out)
    killed = processes(*command, folder=str(tmp_path), before=MOMENTS["writing a measurement"])
    assert killed.code == -9
    places.write_text(places.read_text().replace("N,N1,N12\n", "N,N1,N12\nN,N1,N10\n"))
    assert processes(*command).code == 0
    for path in ("facts/spine.parquet", "measurements/village.parquet"):
        codes = pd.read_parquet(out / "release" / path)["geocode"]
        assert "N10" in set(codes)


@pytest.mark.parametrize("moment", [(("rename", "demo.toml"),), (("rename", "/input"),), (("write", "geography.csv"),)])
def test_a_demo_killed_while_it_writes_its_population_begins_again(
    moment: Before, processes: Processes, tmp_path: Path
) -> None:
    command = ("demo", "--out", tmp_path / "out", "--blocks", 12, "--people", 40, *TESTING)
    assert processes(*command, folder=str(tmp_path), before=moment).code == -9
    again = processes(*command, folder=str(tmp_path), before=(("mkdir", ".histograms.partial"),))
    assert again.code == -9, again.stderr


def test_two_runs_do_not_share_a_folder(processes: Processes, starter: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    job = {"folder": str(tmp_path), "before": (("mkdir", "/.facts.partial"),), "number": signal.SIGSTOP}
    first, outputs = processes.start(["measure", starter, "--out", out], **job)
    try:
        deadline = time.monotonic() + 60
        while _state(first.pid) != "T" and time.monotonic() < deadline:
            time.sleep(0.02)
        assert (out / "confidential" / "run.key").exists()
        second = processes("measure", starter, "--out", out)
    finally:
        os.kill(first.pid, signal.SIGCONT)
        ended = processes.end(first, outputs)
    assert second.code == 2
    assert "another run is at work in it" in second.stderr
    assert ended.code == 0


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_the_log_has_a_line_per_stage_and_nothing_else(country: World) -> None:
    lines = [line.split() for line in (country.out / "run.log").read_text().splitlines()]
    assert [line[1] for line in lines] == ["tabulate", "measure", "estimate", "publish", "report"]
    assert all(len(line) == 4 and line[3] == "s" for line in lines)
    run = json.loads((country.out / "run.json").read_bytes())
    assert set(run) == {"release", "plan_digest", "run_id", "seeded", "started"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("appears", "options"),
    [
        ("confidential/run.key", ()),
        ("release/.measurements.partial", ()),
        ("release/measurements", ()),
        ("release/counts", ()),
        ("release/.counts.partial/province.parquet", MULTI_PROCESS),
        ("release/.measurements.partial/village.parquet", MULTI_PROCESS),
    ],
)
def test_the_installed_command_killed_as_soon_as_a_path_appears(
    appears: str, options: tuple[str, ...], interrupted: Interrupted, starter: Path, tmp_path: Path
) -> None:
    """No hook at all: poll the folder from outside and kill. Worker processes notice by themselves."""
    out = tmp_path / "out"
    command = [str(Path(sys.executable).with_name("das")), "run", str(starter), "--out", str(out), *TESTING, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as process:
        while not (out / appears).exists():
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.002)
        process.kill()
    assert process.returncode == -9
    for _ in range(20):
        again = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if again.returncode != 2 or "another run" not in again.stderr:
            break
        time.sleep(0.5)
    assert again.returncode == 0, again.stderr
    interrupted.check_measured(starter, out, TESTING)
    interrupted.check_finished(out, TESTING)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_worker_processes_too(
    number: signal.Signals, interrupted: Interrupted, starter: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    das = str(Path(sys.executable).with_name("das"))
    command = [das, "run", str(starter), "--out", str(out), *TESTING, *MULTI_PROCESS]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not (out / "release" / "counts").exists() and not (out / "release" / ".counts.partial").exists():
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, number)  # what a terminal does
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 6, stderr
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1].endswith("run the same command again")
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    interrupted.check_finished(out, TESTING)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_twenty_times_within_a_stage(processes: Processes, tree: Tree, starter: Path, tmp_path: Path) -> None:
    outs = tmp_path / "undisturbed", tmp_path / "killed"
    for out in outs:
        measured = processes("measure", starter, "--out", out, *TESTING, numbers_per_shard=1)
        assert measured.code == 0, measured.stderr
    undisturbed, killed = (("estimate", starter, "--out", out, *TESTING) for out in outs)
    assert processes(*undisturbed, numbers_per_shard=1).code == 0
    partials, kept = [outs[1] / "release" / f".{name}.partial" for name in ("counts", "estimates")], dict[Path, int]()
    for _ in range(20):  # each time the first file that is still missing is finished
        ended = processes(
            *killed, numbers_per_shard=1, folder=str(tmp_path), before=(("rename", ".parquet"), ("rename", ".parquet"))
        )
        assert ended.code in (-signal.SIGKILL, INTERRUPTED), ended.stderr
        files = [path for partial in partials for path in partial.rglob("*.parquet") if path.is_file()]
        found = {path: path.stat().st_mtime_ns for path in files}
        assert found.items() >= kept.items()  # what was finished was not written again
        assert len(found) == len(kept) + 1
        kept = found
    assert processes(*killed, numbers_per_shard=1).code == 0
    assert tree(outs[1] / "release") == tree(outs[0] / "release")


@pytest.mark.slow
def test_killed_while_histograms_are_written_what_was_placed_is_not_read_again(
    processes: Processes, tree: Tree, starter: Path, tmp_path: Path
) -> None:
    """The second run finds where the records of the file belong, as the first one kept it."""
    command = ("tabulate", starter, "--out", tmp_path / "out", *TESTING)
    before = MOMENTS["writing a histogram"]
    killed = processes(*command, folder=str(tmp_path), before=before)
    assert killed.code in (-signal.SIGKILL, INTERRUPTED), killed.stderr
    partial = tmp_path / "out/confidential/.histograms.partial"
    (placed,) = (path for path in (partial / "_scratch").iterdir() if path.is_file())
    made = placed.stat().st_mtime_ns
    again = processes(*command, folder=str(tmp_path), before=before)
    assert again.code in (-signal.SIGKILL, INTERRUPTED), again.stderr
    assert placed.stat().st_mtime_ns == made
    assert processes(*command).code == 0
    undisturbed = ("tabulate", starter, "--out", tmp_path / "undisturbed", *TESTING)
    assert processes(*undisturbed).code == 0
    folders = [tmp_path / out / "confidential/histograms" for out in ("out", "undisturbed")]
    assert tree(folders[0]) == tree(folders[1])


@pytest.mark.slow
def test_a_congenial_draw_continues_where_it_was_killed(
    processes: Processes, tree: Tree, starter: Path, tmp_path: Path
) -> None:
    """Families that were drawn are kept, in the confidential folder, and go when the draw is complete."""
    config = starter.with_name("congenial.toml")
    text = starter.read_text()
    queries = text[text.index('total = "1/4"') : text.index("# `total` is the number of people")]
    config.write_text(text.replace(queries, 'detailed = "1"\n') + '\n[estimate]\nmethod = "congenial"\n')
    outs = tmp_path / "killed", tmp_path / "undisturbed"
    command = ("measure", config, "--out", outs[0], *TESTING)
    kept: dict[Path, int] = {}
    for moment in (
        (("mkdir", "SendUp-district-40.0"),),
        (("mkdir", "DrawFamily-village-40.0"),),
        (("rename", "/counts"),),
    ):
        killed = processes(*command, folder=str(tmp_path), before=moment)
        assert killed.code in (-signal.SIGKILL, INTERRUPTED), killed.stderr
        found = {path: path.stat().st_mtime_ns for path in outs[0].glob("confidential/.draw.partial/*-*.0/*")}
        assert found.items() >= kept.items()
        assert len(found) > len(kept)
        assert (outs[0] / "confidential/.draw.partial/too-narrow-0").exists(), "its windows are tried once"
        kept = found
    assert processes(*command).code == 0
    assert not list(outs[0].glob("confidential/.draw*"))
    assert processes("measure", config, "--out", outs[1], *TESTING).code == 0
    assert tree(outs[0] / "release") == tree(outs[1] / "release")
