"""The budget of a data set through the command line: refused, raised, shown, and checked for tampering."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Ended

Run = Callable[..., "Ended"]


def kinds_of(ended: Ended) -> list[str]:
    return [entry["kind"] for entry in json.loads(ended.stdout)["entries"]]


def test_a_second_release_needs_a_budget(run: Run, config: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert "ledger     none yet; the first release begins it" in run("check", config).stdout
    assert run("measure", config, "--out", first).code == 0
    again = run("check", config)
    assert again.code == 0, "what was charged may be continued in its own folder"
    assert "data: 2 is spent; this plan was charged on " in again.stdout
    assert "and its folder needs no more; another release of it has no room" in again.stdout
    other = config.with_name("other.toml")
    other.write_text(config.read_text().replace('name = "example"', 'name = "other"'))
    checked = run("check", other)
    assert checked.code == 5
    assert "run 'new' needs 2 and 0 is left" in checked.stderr
    refused = run("run", config, "--out", second)
    assert refused.code == 5
    assert "the total epsilon of data set 'data' is 2, of which 2 is already spent by " in refused.stderr
    assert "needs 2 and 0 is left" in refused.stderr
    assert "raise the total, with a reason: das ledger DIR --raise-to TOTAL --reason WHY" in refused.stderr
    assert not (second / "confidential" / "histograms").exists(), "it is refused before any record is read"

    # Nothing happens to the total without a larger number and a reason.
    for raised, message in (
        (("--raise-to", "4"), "--raise-to: needs a --reason"),
        (("--raise-to", "four", "--reason", "why not"), "--raise-to four: is not a fraction; write for example 7/2"),
        (("--raise-to", "1/0", "--reason", "why not"), "is not a fraction"),
        (("--raise-to", "4", "--accept-loss", "--reason", "why not"), "are two decisions; record one at a time"),
        (("--accept-loss", "--reason", "why not"), "nothing is lost"),
        (("--reason", "why not"), "--reason: means nothing by itself"),
    ):
        ended = run("ledger", first, *raised)
        assert ended.code == 2
        assert message in ended.stderr
    lowered = run("ledger", first, "--raise-to", "1", "--reason", "thrift")
    assert lowered.code == 5
    assert "can only be raised" in lowered.stderr
    assert kinds_of(run("ledger", first, "--json")) == ["open", "reserve", "commit"]

    # The remedy works as it is written, from the folder that was refused.
    assert run("ledger", second, "--raise-to", "4", "--reason", "a second table").code == 0
    assert run("measure", config, "--out", second).code == 0
    shown = run("ledger", second, "--json", "--verify")
    assert kinds_of(shown) == ["open", "reserve", "commit", "raise", "reserve", "commit"]
    assert json.loads(shown.stdout)["datasets"] == {"data": {"spent": "4"}}
    text = run("ledger", first)
    assert "a second table" in text.stdout
    assert "spent on data: epsilon 4 of 4; 0 is left" in text.stdout
    assert "amounts are nominal" in text.stdout
    assert run("measure", config, "--out", tmp_path / "third").code == 5


def test_a_deleted_ledger_is_a_decision_and_no_new_budget(run: Run, config: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert run("measure", config, "--out", first).code == 0
    (config.parent / "ledger.sqlite").unlink()
    for ended in (run("check", config), run("run", config, "--out", second), run("ledger", second)):
        assert ended.code == 5
        assert "the ledger is gone, which the witness " in ended.stderr
        assert "das ledger DIR --accept-loss --reason WHY" in ended.stderr
    assert not (second / "confidential" / "histograms").exists()
    assert not (config.parent / "ledger.sqlite").exists()
    accepted = run("ledger", second, "--accept-loss", "--reason", "a fire", "--json", "--verify")
    assert accepted.code == 0
    assert kinds_of(accepted) == ["open", "lost"]
    assert json.loads(accepted.stdout)["datasets"] == {"data": {"spent": "2"}}
    assert len(json.loads(accepted.stdout)["witnesses"]) == 2
    refused = run("measure", config, "--out", second)
    assert refused.code == 5
    assert "needs 2 and 0 is left" in refused.stderr


def test_a_finished_release_says_so_and_whether_its_input_changed(run: Run, copy: tuple[Path, Path]) -> None:
    out, ledger = copy
    config, people = ledger.with_name("config.toml"), ledger.with_name("people.csv")
    before = ledger.read_bytes()
    again = run("run", config, "--out", out)
    assert again.code == 0
    day = json.loads((out / "release" / "manifest.json").read_bytes())["finished"][:10]
    assert (
        f"{out}: this release was finished on {day}; nothing is spent again; its input has not changed" in again.stderr
    )
    people.write_text(people.read_text() + "N11,f,0-14\n")
    changed = run("run", config, "--out", out)
    assert (changed.code, changed.stdout) == (0, again.stdout)
    assert "its input has changed since, and is not read again" in changed.stderr
    people.unlink()
    gone = run("run", config, "--out", out)
    assert gone.code == 0
    assert "is no longer there to compare" in gone.stderr
    assert ledger.read_bytes() == before


def test_a_stated_total_is_checked(run: Run, config: Path, tmp_path: Path) -> None:
    stated = config.read_text().replace('geocode = "village"', 'geocode = "village"\nbudget = "5"')
    config.write_text(stated)
    assert run("measure", config, "--out", tmp_path / "first").code == 0
    config.write_text(stated.replace('"5"', '"7"'))
    refused = run("measure", config, "--out", tmp_path / "second")
    assert refused.code == 5
    assert "the total of data set 'data' is fixed at 5, and this run states 7" in refused.stderr


def test_a_test_run_is_listed_and_free(run: Run, config: Path, tmp_path: Path) -> None:
    assert run("measure", config, "--out", tmp_path / "out", "--testing-key", "a").code == 0
    shown = run("ledger", tmp_path / "out", "--json")
    assert shown.code == 0
    assert kinds_of(shown) == ["testing"]
    assert json.loads(shown.stdout)["datasets"] == {"data": {"spent": "0"}}


def test_folders_without_a_ledger(run: Run, tmp_path: Path) -> None:
    ended = run("ledger", tmp_path)
    assert ended.code == 2
    assert "holds no run of das and no ledger; name the folder given to `das run --out`" in ended.stderr


@pytest.fixture
def copy(released: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The run's folder and its ledger, safe to spoil."""
    folder = shutil.copytree(released, tmp_path / "copy")
    ledger = folder / "input" / "ledger.sqlite"
    origin = folder / "out" / "confidential" / "whereabouts.json"
    origin.write_text(json.dumps(json.loads(origin.read_bytes()) | {"ledger": str(ledger)}))
    return folder / "out", ledger


def test_a_sound_ledger_is_verified(run: Run, copy: tuple[Path, Path]) -> None:
    ended = run("ledger", copy[0], "--verify")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[-1] == "hash chain: verified"
    assert json.loads(run("ledger", copy[0], "--verify", "--json").stdout)["verified"] is True
    assert json.loads(run("ledger", copy[0], "--json").stdout)["verified"] is False


def without_triggers(path: Path, change: str) -> None:
    """What somebody with a database editor does, who puts the triggers back when done."""
    with sqlite3.connect(path) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(change)
        for _, sql in triggers:
            connection.execute(sql)
    connection.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE event SET amount = '1/1' WHERE kind = 'reserve'", "entry 2: it was altered after it was written"),
        ("UPDATE event SET note = 'nothing happened' WHERE kind = 'commit'", "entry 3: it was altered"),
        ("DELETE FROM event WHERE kind = 'reserve'", "entry 2 should come before it and is missing"),
        ("DELETE FROM event WHERE kind = 'commit'", "no longer holds the entry that this release's manifest names"),
        ("DELETE FROM event", "no longer holds the entry that this release's manifest names"),
    ],
)
def test_tampering_and_truncation_are_found(change: str, message: str, run: Run, copy: tuple[Path, Path]) -> None:
    out, ledger = copy
    without_triggers(ledger, change)
    ended = run("ledger", out, "--verify")
    assert ended.code == 5
    assert ended.stdout == ""
    assert message in ended.stderr
    assert "restore the ledger from a copy" in ended.stderr


def test_a_lost_or_replaced_ledger_is_found(run: Run, copy: tuple[Path, Path]) -> None:
    out, ledger = copy
    ledger.rename(ledger.with_name("kept"))
    gone = run("ledger", out)
    assert gone.code == 5
    assert "the ledger is gone; restore it; a new one would forget what was spent" in gone.stderr
    assert not ledger.exists()
    ledger.touch()
    assert run("ledger", out, "--verify").code == 5
    ledger.write_bytes(b"this is no database at all, it is a letter" * 30)
    assert run("ledger", out, "--verify").code == 5


def test_a_damaged_ledger_grants_nothing(run: Run, config: Path, tmp_path: Path) -> None:
    assert run("measure", config, "--out", tmp_path / "first").code == 0
    assert run("ledger", tmp_path / "first", "--raise-to", "9", "--reason", "more").code == 0
    without_triggers(config.parent / "ledger.sqlite", "UPDATE event SET amount = '1/1' WHERE kind = 'reserve'")
    refused = run("measure", config, "--out", tmp_path / "second")
    assert refused.code == 5
    assert "altered after it was written" in refused.stderr
    assert not (tmp_path / "second" / "release" / "measurements").exists()


def test_a_table_leaves_no_run_and_its_ledger_is_named_by_itself(
    run: Run, tmp_path: Path, table_of_a_town: Callable[..., Path]
) -> None:
    config, ledger = table_of_a_town(tmp_path, total=1), tmp_path / "ledger.sqlite"
    assert run("table", config, "--out", tmp_path / "first").code == 0
    refused = run("table", config, "--out", tmp_path / "second")
    assert refused.code == 5
    assert "(DIR: a run's folder, or the ledger's)" in refused.stderr
    published = run("ledger", tmp_path / "first")
    assert published.code == 2
    assert "or the ledger's file, which lies beside the data" in published.stderr

    shown = run("ledger", ledger)
    assert shown.code == 0
    assert "spent on town: epsilon 1 of 1; 0 is left" in shown.stdout
    assert "no theorem joins them" in shown.stdout
    assert "das account FOLDER" not in shown.stdout, "there is no run to account"
    assert run("ledger", tmp_path, "--verify").code == 0
    other = run("ledger", ledger, "--raise-to", "2", "--reason", "a second table", "--dataset", "city")
    assert other.code == 2
    assert "--raise-to: is about no data set of this ledger; write --dataset NAME; the ledger has town" in other.stderr
    alone = run("ledger", ledger, "--dataset", "town")
    assert (alone.code, "--dataset: means nothing by itself" in alone.stderr) == (2, True)

    assert run("ledger", tmp_path, "--raise-to", "2", "--reason", "a second table").code == 0
    table_of_a_town(tmp_path, total=2)
    assert run("table", config, "--out", tmp_path / "second").code == 0
    ledger.unlink()
    gone = run("ledger", tmp_path)
    assert gone.code == 5
    assert "the ledger is gone, which the witness " in gone.stderr
    accepted = run("ledger", tmp_path, "--accept-loss", "--reason", "a fire", "--json", "--verify")
    assert accepted.code == 0
    assert json.loads(accepted.stdout)["datasets"] == {"town": {"spent": "2"}}
    again = run("table", config, "--out", tmp_path / "third")
    assert again.code == 5
    assert "needs 1 and 0 is left" in again.stderr


def test_that_the_people_of_a_table_are_others_is_decided_by_the_ledger_alone(
    run: Run, tmp_path: Path, table_of_a_town: Callable[..., Path]
) -> None:
    config = table_of_a_town(tmp_path, total=1)
    assert run("table", config, "--out", tmp_path / "first").code == 0
    config.write_text(config.read_text().replace('dataset = "town"', 'dataset = "village"'))
    refused = run("table", config, "--out", tmp_path / "second")
    assert refused.code == 5
    assert "with --dataset 'village'" in refused.stderr
    name = refused.stderr.split("--distinct-from ")[1].split()[0]
    decided = run("ledger", tmp_path, "--distinct-from", name, "--dataset", "village", "--reason", "the panel of 3 May")
    assert decided.code == 0, decided.stderr
    assert run("table", config, "--out", tmp_path / "second").code == 0
