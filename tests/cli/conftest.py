"""The command line, run in this process: exit code, standard output, standard error."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import das
from das import cli
from das.demo.starter import write_starter


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said where."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run a command; every message to a person goes to standard error, and none of them is a traceback."""

    def run_command(*arguments: object) -> Ended:
        capfd.readouterr()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        code = 0
        try:
            cli.main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        stdout, stderr = capfd.readouterr()
        assert "Traceback" not in stderr
        return Ended(code, stdout, stderr)

    return run_command


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A fresh starter."""
    return write_starter(tmp_path / "input")


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished release and its input, only to be read."""
    folder = tmp_path_factory.mktemp("released")
    das.run(das.load(write_starter(folder / "input")), out=folder / "out")
    return folder
