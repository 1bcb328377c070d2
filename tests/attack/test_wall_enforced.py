"""The far side of the wall: what is confidential cannot be opened there, whatever the program tries."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import das
from das.demo.starter import write_starter
from das.errors import UsageError
from pipelines.wall import landlock
from pipelines.wall.confinement import KINDS, LANDLOCK, MOUNT_NAMESPACE, NOTHING, Confinement, Wall, weakest

SECRET = b"7919 people"


def outcome_of(tried: Callable[[], object]) -> str:
    """Do something in a forked process, which may be confined for good; return what it returned or raised."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = str(tried())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        os.write(writer, answer.encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        said = answers.read()
    os.waitpid(child, 0)
    return said


@pytest.fixture
def two_sides(tmp_path: Path) -> Confinement:
    """A folder on either side of the wall, with a record, a histogram, a key and a ledger on the near one."""
    names = ("input/people.csv", "confidential/histograms/block.parquet", "confidential/run.key", "input/ledger.sqlite")
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(SECRET)
    for name in ("release", "temporary"):
        (tmp_path / name).mkdir()
    (tmp_path / "input" / "places.csv").write_text("public")
    (tmp_path / "release" / "facts").write_text("public")
    hidden = ("input/people.csv", "confidential", "input/ledger.sqlite")
    return Confinement(
        release=tmp_path / "release",
        temporary=tmp_path / "temporary",
        public=(tmp_path / "input" / "places.csv",),
        hidden=tuple(tmp_path / name for name in hidden),
    )


def by(kind: str, sides: Confinement, tried: Callable[[], object]) -> str:
    """Do something behind a wall of one kind; a kernel without it is said to be one."""

    def confined() -> object:
        sides.enforce([kind])
        return tried()

    said = outcome_of(confined)
    if "this kernel" in said:
        pytest.skip(f"this kernel has no {kind}")
    return said


KEPT = pytest.mark.parametrize("kind", [LANDLOCK, MOUNT_NAMESPACE])


@KEPT
@pytest.mark.parametrize(
    "name", ["input/people.csv", "confidential/histograms/block.parquet", "confidential/run.key", "input/ledger.sqlite"]
)
def test_nothing_confidential_can_be_read(kind: str, name: str, two_sides: Confinement, tmp_path: Path) -> None:
    assert outcome_of((tmp_path / name).read_bytes) == str(SECRET)  # without the wall it can
    said = by(kind, two_sides, (tmp_path / name).read_bytes)
    assert "7919" not in said
    assert said.startswith(("PermissionError", "FileNotFoundError", "b''"))


def _by_hard_link(root: Path) -> bytes:
    os.link(root / "confidential/run.key", root / "release/key")
    return (root / "release/key").read_bytes()


def _by_symbolic_link(root: Path) -> list[str]:
    (root / "release/link").symlink_to("../confidential")
    return os.listdir(root / "release/link")


WAYS: dict[str, Callable[[Path], object]] = {
    "hard link": _by_hard_link,
    "symbolic link": _by_symbolic_link,
    "rename": lambda root: os.rename(root / "confidential", root / "release/c"),
    "listing": lambda root: os.listdir(root / "confidential"),
    "the parent's root": lambda root: Path(f"/proc/{os.getppid()}/root{root}/confidential/run.key").read_bytes(),
    "the parent's memory": lambda _: os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY),
    "another program": lambda root: subprocess.check_output(["cat", str(root / "confidential/run.key")]),
}


@KEPT
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_no_way_around_it(kind: str, way: Callable[[Path], object], two_sides: Confinement, tmp_path: Path) -> None:
    said = by(kind, two_sides, lambda: way(tmp_path))
    assert "7919" not in said
    assert re.match("PermissionError|OSError|CalledProcessError|FileNotFoundError", said), said
    assert (tmp_path / "confidential" / "run.key").read_bytes() == SECRET


@KEPT
def test_what_is_public_is_read_and_the_release_is_written(kind: str, two_sides: Confinement, tmp_path: Path) -> None:
    def work() -> str:
        (tmp_path / "release" / "counts").mkdir()
        (tmp_path / "release" / "counts" / "a").write_text("1")
        return (tmp_path / "input" / "places.csv").read_text() + (tmp_path / "release" / "facts").read_text()

    assert by(kind, two_sides, work) == "publicpublic"
    assert (tmp_path / "release" / "counts" / "a").read_text() == "1"


def test_no_port_is_opened_behind_it(two_sides: Confinement) -> None:
    def listen() -> None:
        import socket

        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))

    if landlock.abi() < landlock.TCP_SINCE:
        pytest.skip("this kernel's Landlock does not know ports")
    assert outcome_of(listen) == "None"
    assert by(LANDLOCK, two_sides, listen).startswith("PermissionError")


def test_a_wall_that_leaks_ends_the_run(two_sides: Confinement, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "restrict", lambda **_: 7)
    said = outcome_of(lambda: two_sides.enforce([LANDLOCK]))
    assert said.startswith("UsageError")
    assert "can still be opened behind the wall" in said


def test_a_kernel_without_any_says_so(two_sides: Confinement, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    monkeypatch.setattr("pipelines.wall.mount_namespace.hide", _refused)
    assert outcome_of(two_sides.enforce) == str(Wall(NOTHING))
    assert "Nothing but the program itself" in Wall(NOTHING).words


def _refused(_paths: object) -> None:
    raise OSError(1, "Operation not permitted")


def test_confidential_files_in_a_folder_that_must_be_read_are_refused(two_sides: Confinement) -> None:
    """In the release folder, for example: what the far side may read cannot hold the records."""
    planted = two_sides.release / "people.csv"
    planted.write_bytes(SECRET)
    sides = Confinement(two_sides.release, two_sides.temporary, (), (planted,))
    with pytest.raises(UsageError, match="must read; move it to a folder of its own"):
        sides.enforce()


@pytest.mark.slow
def test_the_statement_says_the_weakest(tmp_path: Path) -> None:
    assert weakest([Wall(kind) for kind in KINDS]).kind == NOTHING
    config = write_starter(tmp_path / "input")
    release = das.run(das.load(config), out=tmp_path / "out", testing_key="wall")
    said = outcome_of(lambda: landlock.abi())
    expected = LANDLOCK if int(said) else release.statement["wall"]["enforced_by"]
    assert release.statement["wall"]["enforced_by"] == expected
    record = json.loads((tmp_path / "out/release/counts/_committed.json").read_bytes())
    assert record["wall"]["enforced_by"] == expected


OPENED = re.compile(r'^(?P<process>\d+) +open(?:at2?)?\((?:AT_FDCWD, )?"(?P<path>[^"]*)".*\) = (?P<result>-?\d+)')
FORKED = re.compile(r"^(?P<process>\d+) .*(?:clone3?|vfork|fork)\(.*\) = (?P<child>\d+)$")


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("runner", ["in-memory", pytest.param("multi-process", marks=pytest.mark.slow)])
def test_a_whole_run_opens_nothing_confidential_behind_the_wall(runner: str, tmp_path: Path) -> None:
    config = write_starter(tmp_path / "input")
    log, out = tmp_path / "log", tmp_path / "out"
    calls = "trace=open,openat,openat2,clone,clone3,fork,vfork,landlock_restrict_self"
    command = [
        sys.executable,
        "-c",
        "import das.cli; das.cli.main()",
        "run",
        str(config),
        "--out",
        str(out),
        "--",
        f"--runner={runner}",
    ]
    traced = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", calls, "-e", "signal=none", "-s", "4096", "-o", str(log)]
    subprocess.run([*traced, *command], check=True, capture_output=True)
    secret = tuple(str(path) for path in (tmp_path / "input" / "people.csv", out / "confidential"))
    behind: set[str] = set()
    tried, before = [], []
    for line in _whole(log.read_text()):
        if "landlock_restrict_self" in line and line.endswith("= 0"):
            behind.add(line.split()[0])
        elif (forked := FORKED.match(line)) and forked["process"] in behind:
            behind.add(forked["child"])
        elif (opened := OPENED.match(line)) and opened["path"].startswith(secret):
            (tried if opened["process"] in behind else before).append(int(opened["result"]))
    assert behind
    assert max(before) > 0  # the near side reads them
    assert tried  # the far side tries, before it begins
    assert set(tried) == {-1}


def _whole(log: str) -> list[str]:
    """Join the two halves of calls that strace shows interrupted by another process."""
    pending: dict[str, str] = {}
    lines = []
    for line in log.splitlines():
        process = line.split()[0]
        if line.endswith("<unfinished ...>"):
            pending[process] = line.removesuffix("<unfinished ...>")
        elif "resumed>" in line and process in pending:
            lines.append(pending.pop(process) + line.partition("resumed>")[2])
        else:
            lines.append(line)
    return lines
