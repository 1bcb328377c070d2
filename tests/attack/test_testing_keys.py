"""A testing key and confidential data: refused, or private to the last file and marked wherever somebody may look."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import das
from das import cli
from das.demo.starter import write_demo, write_starter
from das.errors import UsageError
from das.evaluation.repeat import World
from das.evaluation.simulate import simulate
from das.evaluation.truth import Compared
from das.runner import find_runner
from das.storage.ledger import Ledger
from das.storage.testing_key import UNPROTECTED

DECLARED = 'data = "generated"'


def declare(config: Path, data: str | None) -> Path:
    """Let the starter's config say something else about its data, or nothing."""
    text = config.read_text()
    line = next(line for line in text.splitlines(keepends=True) if line.startswith(DECLARED))
    config.write_text(text.replace(line, "" if data is None else f'data = "{data}"\n'))
    return config


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The starter as somebody points it at real records: nothing declares them harmless."""
    return declare(write_starter(tmp_path / "input"), None)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def das_command(*arguments: object) -> int:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        cli.main([str(argument) for argument in arguments])
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 0


@pytest.mark.parametrize("verb", ["run", "tabulate", "measure"])
@pytest.mark.parametrize("data", [None, "confidential"])
def test_a_testing_key_is_refused_for_data_that_are_not_declared_harmless(
    verb: str, data: str | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = declare(write_starter(tmp_path / "input"), data)
    assert das_command(verb, config, "--out", tmp_path / "out", "--testing-key", "a") == 2
    said = capfd.readouterr().err
    assert "anybody who guesses the key can remove the noise" in said
    assert 'data = "generated"' in said
    assert "--unprotected" in said
    assert not (tmp_path / "out").exists()
    assert not (config.parent / "ledger.sqlite").exists()


@pytest.mark.parametrize("data", ["generated", "public"])
def test_declared_data_take_a_testing_key(data: str, tmp_path: Path) -> None:
    config = declare(write_starter(tmp_path / "input"), data)
    find_runner().run(das.load(config), tmp_path / "out", upto="tabulate", testing_key="a")


def test_what_is_shipped_declares_itself(tmp_path: Path) -> None:
    assert das.load(write_starter(tmp_path / "starter")).settings.input.data == "generated"
    assert das.load(write_demo(tmp_path / "demo", blocks=10, people=0)).settings.input.data == "generated"


def test_the_flag_is_about_testing_keys(config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert das_command("run", config, "--out", tmp_path / "out", "--unprotected") == 2
    assert "--testing-key" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_declaration_draws_nothing(config: Path, tmp_path: Path) -> None:
    """The same key draws the same noise whatever the data are declared to be; only who may read it differs."""
    other = declare(write_starter(tmp_path / "declared"), "public")
    plans = das.load(config), das.load(other)
    assert plans[0].digest == plans[1].digest
    drawn = []
    for name, plan in zip("ab", plans, strict=True):
        find_runner().run(plan, tmp_path / name, upto="measure", testing_key="k", unprotected=True)
        drawn.append((tmp_path / name / "release" / "measurements" / "village.parquet").read_bytes())
    assert drawn[0] == drawn[1]
    modes = [stat.S_IMODE((tmp_path / name / "release" / "measurements").stat().st_mode) for name in "ab"]
    assert modes == [0o700, 0o755]


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("runner", ["in-memory", pytest.param("multi-process", marks=pytest.mark.slow)])
def test_everything_of_an_unprotected_run_is_private_and_says_what_it_is(
    runner: str, config: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = [f"--runner={runner}"]
    release = das.run(das.load(config), out=out, testing_key="a", unprotected=True, options=options)
    das.release.finish.rewrite_report(release.folder)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (out, *out.rglob("*"))}
    assert len(modes) > 40
    for path, mode in modes.items():
        assert oct(mode) == oct(0o700 if path.is_dir() else 0o600), path
    assert release.statement["unprotected"] == release.manifest["unprotected"] == UNPROTECTED
    assert json.loads((out / "run.json").read_bytes())["unprotected"] == UNPROTECTED
    assert UNPROTECTED in release.folder.report.read_text()
    (entry,) = Ledger.open(config.parent / "ledger.sqlite").entries()
    assert entry.kind == "testing"
    assert UNPROTECTED in entry.note


@pytest.mark.usefixtures("open_umask")
def test_the_terminal_says_it_and_a_release_that_was_opened_is_closed(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ("--out", out, "--testing-key", "a", "--unprotected")
    assert das_command("measure", config, *command) == 0
    for path in (out, out / "release", out / "release" / "measurements"):
        path.chmod(0o755)
    assert das_command("run", config, *command) == 0
    assert f"UNPROTECTED: {UNPROTECTED}." in capfd.readouterr().out
    assert not [path for path in (out, *out.rglob("*")) if path.lstat().st_mode & 0o077]


@pytest.mark.slow
def test_a_simulation_of_confidential_data_is_private_while_it_lasts(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no flag: its folders are removed, and it says that its result is as confidential as the data."""
    seen: list[int] = []
    compared = World.compared

    def looked_at(world: World, name: str, folder: Path) -> Iterator[Compared]:
        seen.extend(path.lstat().st_mode & 0o077 for path in (folder, *folder.rglob("*")))
        return compared(world, name, folder)

    monkeypatch.setattr(World, "compared", looked_at)
    simulate(das.load(config), 1, workdir=tmp_path / "work")
    assert len(seen) > 20
    assert set(seen) == {0}
    assert list((tmp_path / "work").iterdir()) == []


def test_a_run_does_not_change_what_its_data_were_declared_to_be(config: Path, tmp_path: Path) -> None:
    """Else a release that was begun in private could be finished for everybody, or the other way round."""
    find_runner().run(das.load(config), tmp_path / "out", upto="tabulate", testing_key="a", unprotected=True)
    declared = das.load(write_starter(tmp_path / "declared"))
    with pytest.raises(UsageError, match="declared otherwise"):
        find_runner().run(declared, tmp_path / "out", upto="measure", testing_key="a")
    find_runner().run(declared, tmp_path / "other", upto="tabulate", testing_key="a")
    with pytest.raises(UsageError, match="declared otherwise"):
        find_runner().run(das.load(config), tmp_path / "other", upto="measure", testing_key="a", unprotected=True)
