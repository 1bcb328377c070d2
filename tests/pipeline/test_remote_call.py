"""One call in a child process: everything it reports and raises arrives, and no child outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from das import errors
from das.errors import BudgetError, Interrupted, Problem, ProblemsFound, UsageError, WindowsTooNarrow
from das.runner import StageTime, StepTime
from pipelines.workers import remote_call
from pipelines.workers.remote_call import RemoteFailure, call

SERVE = "from pipelines.workers.remote_call import end_with_parent, serve; end_with_parent(); serve(0, 1)"
"""A child without Beam, which starts fast."""

CALLED = """
import os, signal, sys, time
from pathlib import Path
from das import errors
from das.errors import Problem
from das.runner import StageTime, StepTime

def reports(first, *, second, progress, stopwatch):
    for done in range(3):
        progress("measure", done, 2)
    stopwatch(StageTime(stage="measure", seconds=1.5, steps={"a b": StepTime(calls=2, seconds=0.5, cpu_seconds=0.25)}))
    stopwatch(StageTime(stage="estimate", seconds=2.0))
    return [first, second]

def fails(kind, *problems, progress, stopwatch):
    raise getattr(errors, kind)(problems)

def prints_and_fails(progress, stopwatch):
    print("said in the child")
    fails("BudgetError", Problem("a", "b"), progress=progress, stopwatch=stopwatch)

def refuses(path, progress, stopwatch):
    open(path)

def breaks(progress, stopwatch):
    raise ZeroDivisionError("of a count")

def returns_what_is_no_data(progress, stopwatch):
    return object()

def dies(how, progress, stopwatch):
    progress("measure", 0, 1)
    os.kill(os.getpid(), how)

def dies_in_a_message(progress, stopwatch):
    os.write(1, b'["progress", ["meas')
    os._exit(0)

def waits(started, left, progress, stopwatch):
    Path(started).write_text(str(os.getpid()))
    try:
        progress("measure", 0, 1)
        time.sleep(100)
    finally:
        Path(left).touch()

def ignores_everything(progress, stopwatch):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    progress("measure", 0, 1)
    time.sleep(100)
"""


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Functions of a module that both processes can import."""
    (tmp_path / "called_remotely.py").write_text(CALLED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    sys.modules.pop("called_remotely", None)
    return __import__("called_remotely")


def child(*more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SERVE, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def until(what: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_arguments_progress_times_and_the_result_arrive(called: ModuleType) -> None:
    told: list[Any] = []
    process = child()
    result = call(process, called.reports, 1, second="é\n", progress=lambda *at: told.append(at), stopwatch=told.append)
    assert result == [1, "é\n"]
    steps = {"a b": StepTime(calls=2, seconds=0.5, cpu_seconds=0.25)}
    assert told == [
        *(("measure", done, 2) for done in range(3)),
        StageTime(stage="measure", seconds=1.5, steps=steps),
        StageTime(stage="estimate", seconds=2.0),
    ]
    assert process.returncode == 0


def test_nobody_has_to_listen(called: ModuleType) -> None:
    assert call(child(), called.reports, 1, second=None) == [1, None]


KINDS = [name for name in errors.__all__ if name != "Problem"]


def test_problems_are_raised_as_they_were(called: ModuleType) -> None:
    problems = (Problem("geo.csv, row 3", "has no parent", "give one"), Problem("a", "b"))
    with pytest.raises(WindowsTooNarrow) as found:
        call(child(), called.fails, "WindowsTooNarrow", *problems)
    assert found.value.problems == problems


@pytest.mark.parametrize("kind", KINDS)
def test_the_kinds_go_into_a_message_and_out_again(kind: str) -> None:
    error = getattr(errors, kind)(Problem("a", "b", "c"), Problem("d", "e"))
    with pytest.raises(ProblemsFound) as found:
        remote_call._raise(*remote_call._outcome_of(error))
    assert type(found.value) is type(error)
    assert found.value.problems == error.problems


def test_what_the_operating_system_refuses_keeps_its_number_and_path(called: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as found:
        call(child(), called.refuses, str(tmp_path / "missing"))
    assert found.value.filename == str(tmp_path / "missing")


@pytest.mark.parametrize(
    ("function", "name", "says"),
    [("breaks", "ZeroDivisionError", "of a count"), ("returns_what_is_no_data", "TypeError", "not JSON serializable")],
)
def test_an_unexpected_error_keeps_its_name_and_its_traceback(
    called: ModuleType, function: str, name: str, says: str
) -> None:
    with pytest.raises(RemoteFailure, match=says) as found:
        call(child(), getattr(called, function))
    assert type(found.value).__name__ == name
    assert str(found.value).startswith("Traceback (most recent call last)")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_child_that_dies_interrupts(called: ModuleType, how: signal.Signals) -> None:
    with pytest.raises(Interrupted, match="was ended before its work was done; run the same command again"):
        call(child(), called.dies, how)


def test_a_child_that_dies_in_the_middle_of_a_message_interrupts(called: ModuleType) -> None:
    with pytest.raises(Interrupted, match="was ended before its work was done"):
        call(child(), called.dies_in_a_message)


def test_a_child_that_never_began_interrupts(called: ModuleType) -> None:
    dead = subprocess.Popen(["false"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    dead.wait()
    with pytest.raises(Interrupted):
        call(dead, called.reports, bytes(1 << 20), second=1)


def test_a_child_that_is_asked_to_stop_interrupts(called: ModuleType) -> None:
    with pytest.raises(KeyboardInterrupt):
        call(child(), called.dies, signal.SIGTERM)


def test_an_interrupt_here_ends_the_child_which_leaves_in_order(called: ModuleType, tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    started, left = tmp_path / "started", tmp_path / "left"
    process = child()
    with pytest.raises(KeyboardInterrupt):
        call(process, called.waits, str(started), str(left), progress=interrupted)
    assert process.returncode is not None
    assert left.exists()


def test_a_child_that_does_not_stop_is_killed(called: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_call, "STOP_SECONDS", 0.2)

    def refused(*_: object) -> None:
        raise UsageError(Problem("a", "b"))

    process = child()
    with pytest.raises(UsageError):
        call(process, called.ignores_everything, progress=refused)
    assert process.returncode == -signal.SIGKILL


def test_ctrl_c_reaches_the_parent_alone(called: ModuleType) -> None:
    """The terminal sends it to both; the child goes on until its parent decides."""
    told: list[tuple[str, int, int]] = []
    process = child()

    def interrupt(*at: Any) -> None:
        process.send_signal(signal.SIGINT)
        told.append(at)

    assert call(process, called.reports, 1, second=2, progress=interrupt) == [1, 2]
    assert len(told) == 3


PARENT = """
import subprocess, sys, called_remotely
from pipelines.workers.remote_call import call
process = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
call(process, called_remotely.waits, sys.argv[2], sys.argv[3])
"""


def test_a_child_ends_with_its_parent(called: ModuleType, tmp_path: Path) -> None:
    started, left = tmp_path / "started", tmp_path / "left"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, SERVE, str(started), str(left)])
    until(lambda: started.exists() and started.read_text())
    parent.kill()
    parent.wait()
    until(lambda: gone(int(started.read_text())))
    assert not left.exists()


def test_nothing_of_the_call_is_on_the_command_line_or_in_the_environment(called: ModuleType, tmp_path: Path) -> None:
    secret, seen = "a testing key", []
    process = child()

    def look(*_: object) -> None:
        seen.extend(Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("cmdline", "environ"))

    call(process, called.reports, secret, second=1, progress=look)
    assert seen
    assert all(secret.encode() not in text for text in seen)


@pytest.mark.slow
def test_the_command_serves_a_call_and_keeps_what_is_printed_out_of_the_answers(
    called: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    """The real command, started behind a prefix; it imports Beam."""
    with pytest.raises(BudgetError, match="a: b"):
        call(remote_call.start(["env"]), called.prints_and_fails)
    assert capfd.readouterr() == ("", "said in the child\n")
