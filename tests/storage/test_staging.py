"""A stage happened or did not: killed at every system call, starved of disk, raced by its own workers."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from das.errors import Interrupted, Problem, UsageError
from das.storage import staging as durable
from das.storage.files import make_private, make_public, secure_delete, write_atomically
from das.storage.staging import RECORD, SCRATCH, Staging, committed, verify

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run_script(text: str, *arguments: object) -> list[str]:
    command = [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout.splitlines()


def stage(folder: Path) -> None:
    with Staging(folder) as staging:
        staging.write("a", b"abc")
        staging.write("below/b", lambda file: file.write(b"b" * 100_000))
        staging.commit({"stage": "measure", "plan_digest": "p"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "measurements"


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


# -- behaviour ---------------------------------------------------------------------------------------------------------


def test_a_committed_folder_lists_what_it_holds(folder: Path) -> None:
    assert committed(folder) is None
    stage(folder)
    record = committed(folder)
    text = (folder / RECORD).read_text()
    assert record == json.loads(text)
    assert record is not None
    assert (record["stage"], record["plan_digest"]) == ("measure", "p")
    assert record["files"]["a"] == {"bytes": 3, "sha256": ABC}
    assert list(record) == sorted(record)
    assert list(record["files"]) == ["a", "below/b"]
    assert verify(folder) == []
    assert [path.name for path in folder.parent.iterdir()] == ["measurements"]


def test_nothing_shows_before_the_commit(folder: Path) -> None:
    with Staging(folder) as staging:
        staging.write("a", b"abc")
        assert not folder.exists()
        assert [path.name for path in folder.parent.iterdir()] == [".measurements.partial"]
        record = staging.commit({})
        assert committed(folder) == record
        with pytest.raises(ValueError, match="committed once"):
            staging.commit({})
    assert verify(folder) == []


def test_an_error_or_a_forgotten_commit_leaves_nothing(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), Staging(folder) as staging:
        staging.write("a", lambda file: 1 / 0)
    assert list(folder.parent.iterdir()) == []
    with Staging(folder) as staging:
        staging.write("a", b"abc")
    assert list(folder.parent.iterdir()) == []


def test_a_folder_that_is_there_is_not_touched_unless_it_is_empty(folder: Path) -> None:
    folder.mkdir()
    stage(folder)
    before = (folder / RECORD).read_bytes()
    with pytest.raises(UsageError, match="already there"):
        stage(folder)
    assert (folder / RECORD).read_bytes() == before
    assert list(folder.parent.iterdir()) == [folder]
    link = folder.with_name("link")
    link.symlink_to(folder)
    with pytest.raises(UsageError, match="already there"):
        stage(link)


def test_what_a_killed_run_left_is_cleared(folder: Path) -> None:
    partial = folder.with_name(".measurements.partial")
    (partial / "old").mkdir(parents=True)
    (partial / "old" / "c").write_bytes(b"of another plan")
    (partial / RECORD).write_text("{}")
    (partial / "link").symlink_to(folder.parent)
    stage(folder)
    record = committed(folder)
    assert record is not None
    assert list(record["files"]) == ["a", "below/b"]
    assert verify(folder) == []


def test_unfinished_files_of_killed_workers_are_not_committed(folder: Path) -> None:
    with Staging(folder) as staging:
        staging.write("a", b"abc")
        (staging.partial / ".a.0123456789abcdef.writing").write_bytes(b"ab")
        record = staging.commit({})
    assert list(record["files"]) == ["a"]
    assert sorted(path.name for path in folder.iterdir()) == [RECORD, "a"]


@pytest.mark.parametrize("name", ["", "/a", "../a", "b/../../a", "a/", "./a", RECORD, ".a.0123456789abcdef.writing"])
def test_names_stay_inside(folder: Path, name: str) -> None:
    with Staging(folder) as staging, pytest.raises(ValueError, match="relative name"):
        staging.write(name, b"")


def test_only_files_can_be_committed(folder: Path) -> None:
    with Staging(folder) as staging:
        (staging.partial / "link").symlink_to("/etc/hostname")
        with pytest.raises(UsageError, match="neither a file nor a folder"):
            staging.commit({})
    assert not folder.exists()
    with Staging(folder) as staging, pytest.raises(ValueError, match="'files'"):
        staging.commit({"files": {}})


def test_one_run_at_a_time(folder: Path) -> None:
    with Staging(folder) as staging:
        staging.write("a", b"abc")
        with pytest.raises(UsageError, match="another run is writing it"):
            stage(folder)
        staging.commit({})
    assert verify(folder) == []


@pytest.mark.parametrize(
    ("damage", "name", "reason"),
    [
        (lambda folder: (folder / "a").write_bytes(b"abd"), "a", "contents have changed"),
        (lambda folder: (folder / "a").write_bytes(b"abcd"), "a", "contents have changed"),
        (lambda folder: (folder / "below" / "b").unlink(), "below/b", "missing"),
        (lambda folder: (folder / "c").write_bytes(b""), "c", "came after"),
        (lambda folder: (folder / "c").symlink_to("a"), "c", "neither a file nor a folder"),
        (lambda folder: (folder / RECORD).write_text("{"), RECORD, "damaged"),
        (lambda folder: (folder / RECORD).write_bytes(b"\xff"), RECORD, "damaged"),
        (lambda folder: (folder / RECORD).write_text('{"files": {"../a": {}}}'), RECORD, "damaged"),
        (lambda folder: (folder / RECORD).write_text('{"files": {"a": {"bytes": 3}}}'), RECORD, "damaged"),
        (lambda folder: (folder / RECORD).write_text("[]"), RECORD, "damaged"),
        (lambda folder: (folder / RECORD).unlink(), "", "did not happen"),
    ],
)
def test_damage_is_found(folder: Path, damage: Callable[[Path], object], name: str, reason: str) -> None:
    stage(folder)
    damage(folder)
    (problem,) = verify(folder)
    assert problem.where == str(folder / name)
    assert reason in problem.reason
    assert problem.remedy
    if reason == "damaged":
        with pytest.raises(UsageError, match="damaged"):
            committed(folder)


# -- permissions -------------------------------------------------------------------------------------------------------


def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    tmp_path.chmod(0o755)
    for mode in (0o700, 0o755):
        folder = tmp_path / f"{mode:o}"
        with Staging(folder, mode=mode) as staging:
            assert mode_of(staging.partial) == 0o700
            staging.write("below/a", b"")
            (staging.partial / "foreign").write_bytes(b"")
            staging.commit({})
        assert {mode_of(path) for path in folder.rglob("*") if path.is_dir()} | {mode_of(folder)} == {mode}
        assert {mode_of(path) for path in folder.rglob("*") if path.is_file()} == {mode & 0o666}
    for make, mode in ((make_private, 0o700), (make_public, 0o755), (make_private, 0o700)):
        make(tmp_path / "folder")
        assert mode_of(tmp_path / "folder") == mode


def test_a_file_has_the_mode_that_was_asked_for(tmp_path: Path, umask: int) -> None:
    tmp_path.chmod(0o755)
    for mode in (0o600, 0o644, 0o400):
        write_atomically(tmp_path / "a", b"abc", mode=mode)
        assert mode_of(tmp_path / "a") == mode


def test_nothing_is_open_to_more_people_than_the_folder_it_lies_in(tmp_path: Path, umask: int) -> None:
    """So one decision, the mode of ``release/``, holds for every file, whichever process writes it."""
    make_private(tmp_path / "release")
    write_atomically(tmp_path / "release" / "a", b"abc", mode=0o644)
    with Staging(tmp_path / "release" / "tables", mode=0o755) as staging:
        staging.write("below/b", b"")
        (staging.partial / "foreign").touch(mode=0o666)
        staging.commit({})
    for path in (tmp_path / "release").rglob("*"):
        assert mode_of(path) == (0o700 if path.is_dir() else 0o600), path


# -- killed, starved, raced --------------------------------------------------------------------------------------------

KILLED_EVERYWHERE = """
    import os, shutil, signal, sys
    from pathlib import Path
    from das.storage import staging as durable

    folder = Path(sys.argv[1])
    CALLS = ("open", "fsync", "replace", "rename", "chmod", "fchmod", "mkdir", "unlink", "rmdir", "close")

    def stage(fatal):
        calls = 0
        def counted(function):
            def call(*arguments, **options):
                nonlocal calls
                calls += 1
                if calls == fatal:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **options)
            return call
        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        with durable.Staging(folder) as staging:
            staging.write("a", b"abc")
            staging.write("below/b", lambda file: [file.write(b"b" * 1000) for _ in range(100)])
            staging.write("a", b"abc")
            staging.commit({"stage": "measure"})

    fatal, killed = 0, True
    while killed:
        fatal += 1
        child = os.fork()
        if child == 0:
            stage(fatal)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        killed = os.WIFSIGNALED(status)
        if folder.exists():
            print("present", [str(problem) for problem in durable.verify(folder)], status)
            shutil.rmtree(folder)
        else:
            print("absent", durable.committed(folder), status)
"""


def test_killed_before_any_system_call_the_folder_is_absent_or_complete(folder: Path) -> None:
    # What each killed run leaves is there when the next one starts.
    outcomes = run_script(KILLED_EVERYWHERE, folder)
    absent, present = "absent None 9", "present [] 9"
    assert outcomes[-1] == "present [] 0"
    first = outcomes.index(present)
    assert set(outcomes[:first]) == {absent}
    assert set(outcomes[first:-1]) == {present}
    assert first > 40
    assert list(folder.parent.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_at_any_flush_is_an_interruption(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    flush = os.fsync
    calls, starved = 0, 0

    def fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == starved:
            raise OSError(code, os.strerror(code))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    stage(folder)
    flushes = calls
    assert flushes > 8
    for number in range(1, flushes + 1):
        shutil.rmtree(folder, ignore_errors=True)
        calls, starved = 0, number
        with pytest.raises(Interrupted, match="free space and run the same command again") as caught:
            stage(folder)
        assert caught.value.exit_code == 6
        assert "measurements" in caught.value.problems[0].where
        assert not folder.with_name(".measurements.partial").exists()
        assert not folder.exists() or (number == flushes and verify(folder) == [])


def test_a_full_disk_under_any_writer_is_an_interruption(folder: Path) -> None:
    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(Interrupted, match=r"measurements: there is no room on the disk"), Staging(folder):
        full(None)  # a writer that is not ours
    with pytest.raises(Interrupted), Staging(folder) as staging:
        staging.write("a", full)
    with pytest.raises(PermissionError), Staging(folder):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert list(folder.parent.iterdir()) == []


TINY_DISK = """
    import sys
    from pathlib import Path
    from das.errors import Interrupted
    from das.storage.staging import Staging

    folder = Path(sys.argv[1]) / "measurements"
    for size in (1 << 20, 1 << 10):
        try:
            with Staging(folder) as staging:
                staging.write("a", b"abc")
                staging.write("b", bytes(size))
                staging.commit({})
        except Interrupted as error:
            print(error.exit_code, list(folder.parent.iterdir()))
    print(sorted(path.name for path in folder.iterdir()))
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    shell = 'mount -t tmpfs -o size=64k none "$0" && exec "$@"'
    command = ["unshare", "-Urm", "sh", "-c", shell, str(tmp_path), sys.executable, "-c", textwrap.dedent(TINY_DISK)]
    try:
        subprocess.run(["unshare", "-Urm", "sh", "-c", shell, str(tmp_path), "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine does not let a test mount a small file system")
    result = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.splitlines() == ["6 []", "['_committed.json', 'a', 'b']"]


WORKERS = """
    import multiprocessing, sys
    from pathlib import Path
    from das.storage.staging import Staging, write_atomically

    def work(partial, order):
        for number in order:
            write_atomically(partial / f"part-{number:02}", bytes([number]) * 50_000)

    folder = Path(sys.argv[1])
    fork = multiprocessing.get_context("fork")
    with Staging(folder) as staging:
        orders = [range(20), range(19, -1, -1), range(20)]
        workers = [fork.Process(target=work, args=(staging.partial, order)) for order in orders]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]
        staging.commit({"workers": [worker.exitcode for worker in workers]})
"""


def test_workers_may_write_the_same_files_at_once(folder: Path) -> None:
    run_script(WORKERS, folder)
    record = committed(folder)
    assert record is not None
    assert record["workers"] == [0, 0, 0]
    assert {name: file["bytes"] for name, file in record["files"].items()} == {
        f"part-{number:02}": 50_000 for number in range(20)
    }
    assert all((folder / f"part-{number:02}").read_bytes() == bytes([number]) * 50_000 for number in range(20))
    assert verify(folder) == []


def test_every_rename_follows_a_flush_of_what_it_names_and_precedes_one_of_its_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # kill -9 cannot show what a power cut would lose; the order of the calls can.
    trace: list[tuple[str, int, int]] = []

    def traced(name: str) -> None:
        function: Callable[..., Any] = getattr(os, name)

        def call(*arguments: Any, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
            if name == "fsync":
                function(*arguments)
                trace.append((name, os.fstat(arguments[0]).st_ino, 0))
                return
            source = os.stat(arguments[0], dir_fd=src_dir_fd).st_ino
            parent = os.stat(Path(arguments[1]).parent, dir_fd=dst_dir_fd).st_ino
            function(*arguments, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            trace.append((name, source, parent))

        monkeypatch.setattr(os, name, call)

    for name in ("fsync", "replace", "rename"):
        traced(name)
    stage(folder)
    renames = [number for number, (name, _, _) in enumerate(trace) if name != "fsync"]
    assert [trace[number][0] for number in renames] == ["replace", "replace", "replace", "rename"]
    for number in renames:
        _, source, parent = trace[number]
        assert ("fsync", source, 0) in trace[:number]
        assert ("fsync", parent, 0) in trace[number + 1 :]
    inside = {path.stat().st_ino for path in (folder, *folder.rglob("*"))}
    assert inside <= {source for name, source, _ in trace[: renames[-1]] if name == "fsync"}


def test_a_failed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomically(path, b"old")

    def fails(file: Any) -> None:
        file.write(b"new")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fails)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_forgetting_flushes_before_it_unlinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, trace = tmp_path / "run.key", []
    write_atomically(key, b"secret")
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (flush(descriptor), trace.append(key.exists())))
    secure_delete(key)
    assert trace == [True, False], "the random bytes, then the folder without the name"


def test_forgetting_overwrites_in_place(tmp_path: Path) -> None:
    key, secret = tmp_path / "run.key", bytes(range(256)) * 5000
    write_atomically(key, secret)
    with key.open("rb") as held:
        secure_delete(key)
        left = held.read()
    assert not key.exists()
    assert len(left) == len(secret)
    assert sum(a == b for a, b in zip(left, secret, strict=True)) < len(secret) / 100  # by chance, 1 in 256
    secure_delete(key)
    other = tmp_path / "other"
    other.write_bytes(secret)
    key.symlink_to(other)
    with pytest.raises(UsageError, match="symbolic link"):
        secure_delete(key)
    assert other.read_bytes() == secret


def test_a_file_with_a_second_name_is_removed_and_not_overwritten(tmp_path: Path) -> None:
    """To overwrite it would destroy what may be another's; that it can still be read is said, and where."""
    key, other = tmp_path / "run.key", tmp_path / "theirs"
    other.write_bytes(b"precious")
    os.link(other, key)
    with pytest.raises(UsageError, match=f"second name.*-inum {other.stat().st_ino}"):
        secure_delete(key)
    assert not key.exists()
    assert other.read_bytes() == b"precious"


def test_the_hash_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert durable.sha256_file(tmp_path / "a") == ABC


def left(folder: Path, key: str, error: BaseException) -> None:
    """Write a file and what a killed writer leaves, then fail."""
    with Staging(folder, key=key) as staging:
        staging.write("a", b"complete")
        (staging.partial / SCRATCH).mkdir()
        (staging.partial / SCRATCH / "sum").write_bytes(b"1")
        (staging.partial / ".b.0123456789abcdef.writing").write_bytes(b"half")
        (staging.partial / "error-1.json").write_bytes(b"{}")
        (staging.partial / "link").symlink_to("/etc/hostname")
        raise error


def test_an_interrupted_stage_with_the_same_key_keeps_what_is_complete(folder: Path) -> None:
    with pytest.raises(Interrupted):
        left(folder, "one", Interrupted(Problem("worker", "ended")))
    with Staging(folder, key="one") as staging:
        assert (staging.partial / "a").read_bytes() == b"complete"
        assert (staging.partial / SCRATCH / "sum").exists()
        assert not (staging.partial / "link").is_symlink()
        record = staging.commit({"stage": "x"})
    assert list(record["files"]) == ["a"]
    assert sorted(path.name for path in folder.iterdir()) == [RECORD, "a"]


@pytest.mark.parametrize("key", ["other", None])
def test_what_was_made_from_other_things_is_cleared(folder: Path, key: str | None) -> None:
    with pytest.raises(KeyboardInterrupt):
        left(folder, "one", KeyboardInterrupt())
    with Staging(folder, key=key) as staging:
        assert not (staging.partial / "a").exists()
    assert not staging.partial.exists()  # left without a commit, and not interrupted


def test_an_error_that_running_again_does_not_mend_keeps_nothing(folder: Path) -> None:
    with pytest.raises(UsageError):
        left(folder, "one", UsageError(Problem("input", "is wrong")))
    assert not folder.with_name(".measurements.partial").exists()


def test_a_disk_that_is_still_full_costs_nothing_that_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Interrupted):
        left(folder, "one", Interrupted(Problem("worker", "ended")))

    def full(path: Path, _content: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(durable, "write_atomically", full)
        for step in ("write", "commit"):
            with pytest.raises(Interrupted, match="no room"), Staging(folder, key="one") as staging:
                staging.write("b", b"more") if step == "write" else staging.commit({"stage": "x"})
    with pytest.raises(Interrupted, match="no room"), Staging(folder, key="one"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with Staging(folder, key="one") as staging:
        assert (staging.partial / "a").read_bytes() == b"complete"
        assert (staging.partial / SCRATCH / "sum").exists()
        assert list(staging.commit({"stage": "x"})["files"]) == ["a"]
    assert verify(folder) == []
