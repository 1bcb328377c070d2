"""Hostile files end in a message: no traceback, no undocumented exit code, no hang, nothing of a record shown.

Each input goes through ``das check``. A part of those that pass goes on through ``das measure``, which reads them
again through Beam; a part of those that are refused goes through ``das tabulate``, which must refuse them too.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from das import cli


def _load(name: str) -> ModuleType:
    """Import a module that lies beside this one; there are no packages among the tests."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"attack_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


fuzz = _load("fuzz")

DOCUMENTED = {0, 2, 3, 4, 5, 6}
CPU_SECONDS = 20.0
"""What one command may take on inputs of a few kilobytes; they take a fiftieth of it."""

CORPUS = range(300)
MANY = range(1000, 11_000)


class Hang(BaseException):
    """A command that does not end."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Ended:
    """Run a command in this process, for a limited time of the processor."""

    def hang(_number: int, _frame: object) -> None:
        raise Hang

    stdout, stderr, code = io.StringIO(), io.StringIO(), 0
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGVTALRM)
    handlers = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGVTALRM, hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            cli.main([str(argument) for argument in arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    except Hang:
        code = -1
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Ended(code, stdout.getvalue(), stderr.getvalue())


def faults(ended: Ended) -> Iterator[str]:
    """Say what is wrong with how a command ended."""
    said = ended.stdout + ended.stderr
    if ended.code == -1:
        yield "hangs"
    elif ended.code not in DOCUMENTED:
        yield f"exit code {ended.code}"
    if "Traceback" in said or "Exception ignored" in said or "unexpected" in said:
        yield "traceback or internal error"
    for canary in fuzz.CANARIES:
        if canary in said:
            yield f"shows the canary {canary}"
    lines = [line for line in ended.stderr.splitlines() if line.startswith("das: ")]
    if ended.code > 0 and (ended.stdout or not lines):
        yield "is refused without a message, or with output"
    if not all(line.isprintable() and 10 < len(line) < 2100 for line in lines) or len(lines) > 130:
        yield "a message that is no line, or too many of them"


@dataclass
class Found:
    """What an attack found."""

    codes: Counter[int] = field(default_factory=Counter)
    ran: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, case: fuzz.Case, command: str, ended: Ended) -> None:
        self.ran[command] += 1
        self.wrong += [f"seed {case.seed}, {case.story}, das {command}: {fault}" for fault in faults(ended)]


def attack(seeds: Iterable[int], folder: Path, *, passing_every: int, refused_every: int) -> Found:
    """Give the input of each seed to ``das check``, and some of them to the stages that read it."""
    found = Found()
    for seed in seeds:
        case = fuzz.make(seed)
        here = folder / "input"
        here.mkdir()
        config = case.write(here)
        ended = run("check", config)
        found.codes[ended.code] += 1
        found.note(case, "check", ended)
        if ended.code == 0 and found.codes[0] % passing_every == 0:
            found.note(case, "plan", run("plan", config))
            found.note(case, "measure", run("measure", config, "--out", folder / "out"))
        elif ended.code != 0 and sum(found.codes.values()) % refused_every == 0:
            refused = run("tabulate", config, "--out", folder / "out")
            found.note(case, "tabulate", refused)
        shutil.rmtree(here)
        shutil.rmtree(folder / "out", ignore_errors=True)
    return found


def test_the_worlds_fit_together_before_they_are_damaged(tmp_path: Path) -> None:
    for name, files in fuzz.WORLDS.items():
        (tmp_path / name).mkdir()
        ended = run("check", fuzz.Case(0, name, files).write(tmp_path / name))
        assert (ended.code, list(faults(ended))) == (0, []), name
        assert any(canary.encode() in b"".join(files.values()) for canary in fuzz.CANARIES) or "gz" in "".join(files)


def test_a_seed_always_makes_the_same_input() -> None:
    assert [fuzz.make(seed) for seed in range(40)] == [fuzz.make(seed) for seed in range(40)]


@pytest.mark.parametrize(
    "ended",
    [
        Ended(1, "", "das: an unexpected KeyError; run again with --debug\n"),
        Ended(-1, "", ""),
        Ended(3, "", f"das: people.csv, row 3: {fuzz.CANARY_LABEL!r} is not a value\n"),
        Ended(3, "", "das: u\ndas: s\n"),
        Ended(3, "", "Traceback (most recent call last):\n"),
        Ended(3, "done\n", "das: people.csv: is damaged\n"),
        Ended(7, "", "das: people.csv: is damaged\n"),
    ],
)
def test_what_must_not_happen_is_recognised(ended: Ended) -> None:
    assert list(faults(ended))


def test_the_corpus(tmp_path: Path) -> None:
    found = attack(CORPUS, tmp_path, passing_every=40, refused_every=150)
    assert found.wrong == []
    assert set(found.codes) >= {0, 2, 3}
    assert found.ran["check"] == len(CORPUS)
    assert found.ran["measure"] >= 1
    assert found.ran["tabulate"] >= 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_inputs(tmp_path: Path) -> None:
    found = attack(MANY, tmp_path, passing_every=50, refused_every=200)
    assert found.wrong == []
    assert found.ran["check"] == len(MANY)
    assert set(found.codes) >= {0, 2, 3}
