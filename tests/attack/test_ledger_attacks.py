"""A ledger that is deleted, put back, replaced, or given the same people twice: the budget is not granted anew.

Runs are claimed and charged as ``das run`` does it, without the pipeline: nothing here depends on what is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import das
from das.errors import BudgetError, UsageError
from das.exact import digest_of_input
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.records.encode import encode
from das.records.read import chunks, fingerprints, input_files, read
from das.storage import ledger_guard
from das.storage.layout import Layout, make_root
from das.storage.ledger import Ledger
from das.storage.ledger_access import guard_of, ledger_path, refuse_early
from das.storage.ledger_view import Decision, ledger_of, ledger_text
from das.storage.population import Population, population_of
from das.storage.run_identity import RunIdentity
from das.storage.witness import PATTERN, Witness

PEOPLE = [f"{unit},{sex},{age}" for unit in ("01001", "01002", "02001", "02003") for sex in "fm" for age in ("0-17",)]
PEOPLE += ["01001,f,65+", "02001,m,18-64", "02001,f,18-64"]
OTHERS = ["11001,f,0-17", "11001,m,18-64", "02003,f,65+", "02003,f,65+", "02003,f,65+"]


def write_people(path: Path, rows: list[str]) -> None:
    path.write_text("geocode,sex,age\n" + "\n".join(rows) + "\n")


def population(plan: Plan) -> Population:
    spine = spine_of(plan)
    totals = np.zeros(spine.size("block"), np.int64)
    for chunk in chunks(plan):
        for batch in read(chunk, plan):
            counts, _ = encode(batch, plan, spine, chunk.name)
            np.add.at(totals, counts.unit, counts.count)
    return population_of(fingerprints(input_files(plan)), spine, totals)


class Office:
    """Plans over one folder of data, and runs of them up to their charge."""

    def __init__(self, country: Any, folder: Path) -> None:
        self.country, self.folder = country, folder
        self.data = folder / "data"
        self.data.mkdir()
        write_people(self.data / "people.csv", PEOPLE)

    def plan(self, *, rho: str = "1/2", **settings: str) -> Plan:
        given = {"microdata": "data/people.csv", "budget": "1"} | settings
        return self.country.plan(input=given, privacy={"framework": "zcdp", "rho": rho})

    def charge(self, name: str, plan: Plan | None = None, commit: bool = True) -> Layout:
        """Claim a folder and charge a run, as the pipeline does."""
        plan, layout = plan or self.plan(), Layout(self.folder / name)
        make_root(layout.root)
        identity = RunIdentity.claim(plan, layout, None)
        identity.reserve(fingerprints(input_files(plan)), population(plan))
        if commit:
            Ledger.open(ledger_path(plan)).commit(identity.run_id)
            guard_of(plan, layout.confidential.path).record(Ledger.open(ledger_path(plan)))
        return layout

    @property
    def ledger(self) -> Path:
        return self.data / "ledger.sqlite"

    def witnesses(self) -> list[Path]:
        return sorted(self.folder.rglob(PATTERN))


@pytest.fixture
def office(country: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Office(country, tmp_path)


def decide(layout: Layout, **decision: Any) -> Ledger:
    return ledger_of(layout.root, verify=True, decision=Decision(reason="the panel of 3 May", **decision))[0]


# -- deleted, put back, replaced ---------------------------------------------------------------------------------------


def test_a_deleted_ledger_is_not_begun_anew(office: Office) -> None:
    office.charge("first")
    office.ledger.unlink()
    with pytest.raises(BudgetError, match=r"the ledger is gone, which the witness .*: it was deleted or replaced"):
        office.charge("second")
    assert not office.ledger.exists()
    assert not (office.folder / "second" / "confidential" / "run.key").exists()
    office.ledger.touch()  # nor does an empty file in its place help
    with pytest.raises(BudgetError, match="deleted or replaced"):
        office.charge("second")


def test_a_ledger_put_back_to_an_older_copy_grants_nothing(office: Office) -> None:
    office.charge("first")
    copy = office.ledger.read_bytes()
    office.charge("second")
    with pytest.raises(BudgetError, match="0 is left"):
        office.charge("third")
    office.ledger.write_bytes(copy)
    assert Ledger.open(office.ledger).verify() == [], "the copy is sound in itself"
    with pytest.raises(BudgetError, match=r"entry 4 of the ledger is gone.*put back to an older copy"):
        office.charge("third")


def test_a_ledger_of_other_data_in_its_place_grants_nothing(office: Office) -> None:
    office.charge("first")
    other = Ledger.open(office.folder / "other.sqlite")
    other.reserve(
        dataset="data",
        framework="zcdp",
        total=Fraction(9),
        run_id="r",
        amount=Fraction(1),
        plan_digest="",
        input_digest="",
    )
    shutil.copy(other.path, office.ledger)
    with pytest.raises(BudgetError, match="deleted or replaced"):
        office.charge("second")


def test_a_folder_that_was_moved_keeps_its_ledger_and_its_witness(office: Office) -> None:
    office.charge("first")
    moved = office.data.rename(office.folder / "moved")
    plan = office.plan(microdata="moved/people.csv")
    office.charge("second", plan)
    (moved / "ledger.sqlite").unlink()
    with pytest.raises(BudgetError, match="deleted or replaced"):
        office.charge("third", plan)


def test_a_ledger_that_was_deleted_after_the_folder_moved_is_missed(office: Office) -> None:
    office.charge("first")
    office.data.rename(office.folder / "moved")
    (office.folder / "moved" / "ledger.sqlite").unlink()
    with pytest.raises(BudgetError, match="deleted or replaced"):
        office.charge("second", office.plan(microdata="moved/people.csv"))


def test_a_ledger_that_was_moved_goes_on(office: Office) -> None:
    office.charge("first")
    office.ledger.rename(office.folder / "kept.sqlite")
    plan = office.plan(ledger="kept.sqlite")
    office.charge("second", plan)
    with pytest.raises(BudgetError, match="0 is left"):
        office.charge("third", plan)


def test_without_any_witness_a_ledger_that_had_one_grants_nothing(office: Office) -> None:
    """What ``mv data/* elsewhere`` does: hidden files stay behind."""
    office.charge("first")
    for path in office.data.glob(PATTERN):
        path.unlink()
    with pytest.raises(BudgetError, match="every witness of this ledger is gone"):
        office.charge("second")
    layout = Layout(office.folder / "second")
    for path in (office.folder / "first" / "confidential").glob(PATTERN):
        shutil.copy(path, office.data)  # the remedy, as it is written
    office.charge("second")
    assert len(office.witnesses()) == 3
    assert layout.confidential.key.exists()


def test_witnesses_that_are_lost_for_good_are_a_decision(office: Office) -> None:
    office.charge("first")
    for path in office.witnesses():
        path.unlink()
    with pytest.raises(BudgetError, match="every witness of this ledger is gone"):
        office.charge("second")
    ledger = decide(Layout(office.folder / "second"), accept_loss=True)
    assert [(e.kind, e.amount) for e in ledger.entries()[-1:]] == [("lost", 0)]
    office.charge("second")
    assert ledger.spent("data") == 1


# -- a person's decision -----------------------------------------------------------------------------------------------


def test_a_loss_that_a_person_accepts_forgets_no_spending(office: Office) -> None:
    office.charge("first")
    office.ledger.unlink()
    with pytest.raises(BudgetError):
        office.charge("second")
    second = Layout(office.folder / "second")
    with pytest.raises(BudgetError, match="the ledger is gone"):
        ledger_of(second.root, verify=False)
    with pytest.raises(UsageError, match="needs a --reason"):
        ledger_of(second.root, verify=False, decision=Decision(accept_loss=True))
    assert not office.ledger.exists()
    ledger = decide(second, accept_loss=True)
    assert [(e.kind, e.amount) for e in ledger.entries()] == [("open", 1), ("lost", Fraction(1, 2))]
    assert "the panel of 3 May" in ledger_text(*ledger_of(second.root, verify=True), verified=True)
    office.charge("second")  # what was left is left, and no more
    with pytest.raises(BudgetError, match="0 is left"):
        office.charge("third")
    with pytest.raises(UsageError, match="nothing is lost"):
        decide(second, accept_loss=True)
    office.ledger.unlink()  # and the new chain is watched like the old one
    with pytest.raises(BudgetError, match="the ledger is gone"):
        office.charge("fourth")


def test_only_what_the_older_copy_lacks_is_charged_again(office: Office) -> None:
    office.charge("first", office.plan(rho="1/4"))
    copy = office.ledger.read_bytes()
    office.charge("second", office.plan(rho="1/8"))
    office.ledger.write_bytes(copy)
    with pytest.raises(BudgetError, match="put back"):
        office.charge("third")
    ledger = decide(Layout(office.folder / "third"), accept_loss=True)
    assert ledger.entries()[-1].amount == Fraction(1, 8)
    assert ledger.spent("data") == Fraction(3, 8)
    third = office.charge("third")
    identity = RunIdentity.claim(office.plan(), third, None)
    assert ledger.verify() == []
    assert identity.run_id == ledger.entries()[-1].run_id


def test_a_run_whose_own_charge_was_lost_draws_nothing_more(office: Office) -> None:
    """Its key is there, and nobody knows for which input it was used: other data under the same noise would show."""
    office.charge("first", office.plan(rho="1/4"))
    copy = office.ledger.read_bytes()
    office.charge("second", office.plan(rho="1/8"), commit=False)
    office.ledger.write_bytes(copy)
    decide(Layout(office.folder / "second"), accept_loss=True)
    write_people(office.data / "people.csv", [*PEOPLE, "02001,f,18-64"])
    with pytest.raises(BudgetError, match="was lost with entries of the ledger, so it cannot be continued"):
        office.charge("second", office.plan(rho="1/8"))


def test_the_next_manifest_names_the_decision(office: Office) -> None:
    office.charge("first")
    office.ledger.unlink()
    with pytest.raises(BudgetError):
        office.charge("second")
    layout = Layout(office.folder / "second")
    decide(layout, accept_loss=True)
    office.charge("second")
    measured = layout.release.measurements
    measured.mkdir()
    (measured / "_committed.json").write_text(json.dumps({"files": {}, "inputs": []}))
    entry = RunIdentity.claim(office.plan(), layout, None).record().ledger_entry
    (decision,) = entry["decisions"]
    assert (decision["kind"], decision["reason"], len(decision["day"])) == ("lost", "the panel of 3 May", 10)


# -- the same people twice ---------------------------------------------------------------------------------------------


def other_order(office: Office) -> None:
    write_people(office.data / "people.csv", PEOPLE[::-1])


def other_format(office: Office) -> None:
    rows = [row.split(",") for row in PEOPLE]
    columns = dict(zip(("geocode", "sex", "age"), map(list, zip(*rows, strict=True)), strict=True))
    office.country.file("data/people.parquet", pa.table(columns))
    (office.data / "people.csv").unlink()


def one_record_more(office: Office) -> None:
    write_people(office.data / "people.csv", [*PEOPLE, "02003,f,18-64"])


def same_file(office: Office) -> None:
    (office.data / "people.csv").rename(office.data / "renamed.csv")


CHANGES: list[tuple[Callable[[Office], None], str]] = [
    (other_order, "people.csv"),
    (other_format, "people.parquet"),
    (one_record_more, "people.csv"),
    (same_file, "renamed.csv"),
]


@pytest.mark.parametrize(("change", "name"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_another_name_for_the_same_people_is_not_another_budget(
    office: Office, change: Callable[[Office], None], name: str
) -> None:
    office.charge("first", office.plan(rho="1"))
    change(office)
    for settings in ({"dataset": "again"}, {"ledger": "second.sqlite"}):
        plan = office.plan(rho="1", microdata=f"data/{name}", **settings)
        with pytest.raises(BudgetError, match=r"holds the people of data set 'data'.* --distinct-from data@"):
            office.charge("second", plan)
        with pytest.raises(BudgetError, match="holds the people of data set 'data'"):
            refuse_early(plan, population=population(plan))
        shutil.rmtree(office.folder / "second")
    assert Ledger.open(office.ledger).spent("again") == 0


def test_a_file_under_another_name_is_refused_before_it_is_tabulated(office: Office) -> None:
    office.charge("first", office.plan(rho="1"))
    for settings in ({"dataset": "again"}, {"ledger": "second.sqlite"}):
        with pytest.raises(BudgetError, match="holds the people of data set 'data'"):
            das.run(office.plan(rho="1", **settings), out=office.folder / "second")
        assert not (office.folder / "second" / "confidential" / "histograms").exists()
        assert not (office.folder / "second" / "confidential" / "run.key").exists()
        shutil.rmtree(office.folder / "second")


def test_the_same_people_behind_a_link_have_the_same_ledger(office: Office) -> None:
    office.charge("first", office.plan(rho="1"))
    link = office.folder / "elsewhere"
    link.mkdir()
    (link / "people.csv").symlink_to(office.data / "people.csv")
    with pytest.raises(BudgetError, match="holds the people of data set 'data' in the ledger"):
        office.charge("second", office.plan(rho="1", microdata="elsewhere/people.csv"))


def test_other_people_may_have_another_name(office: Office) -> None:
    office.charge("first", office.plan(rho="1"))
    write_people(office.data / "people.csv", OTHERS)
    office.charge("second", office.plan(rho="1", dataset="others"))
    assert Ledger.open(office.ledger).spent("others") == 1


def test_that_people_are_distinct_is_a_decision(office: Office) -> None:
    office.charge("first", office.plan(rho="1"))
    plan = office.plan(rho="1", dataset="sample of 2021")
    with pytest.raises(BudgetError) as caught:
        office.charge("second", plan)
    layout = Layout(office.folder / "second")
    name = caught.value.problems[0].remedy.split("--distinct-from ")[1].split()[0]
    with pytest.raises(UsageError, match="names no data set"):
        decide(layout, distinct_from="data")
    ledger = decide(layout, distinct_from=name)
    assert ledger.spent("sample of 2021") == 0
    office.charge("second", plan)
    with pytest.raises(BudgetError, match="holds the people"):  # it was decided for that name alone
        office.charge("third", office.plan(rho="1", dataset="a third name"))
    assert [e.note for e in ledger.entries("sample of 2021") if e.kind == "distinct"] == ["the panel of 3 May"]


def test_a_run_that_gave_its_charge_back_names_nobody(office: Office) -> None:
    office.charge("first", office.plan(rho="1"), commit=False)
    ledger = Ledger.open(office.ledger)
    ledger.give_back_undrawn(ledger.entries()[-1].run_id)
    office.charge("second", office.plan(rho="1", dataset="again"))


# -- the witness itself ------------------------------------------------------------------------------------------------


def test_a_witness_is_private_and_its_salt_is_in_nothing_else(office: Office) -> None:
    old = os.umask(0)
    try:
        office.charge("first")
    finally:
        os.umask(old)
    paths = office.witnesses()
    assert {path.parent for path in paths} == {office.data, office.folder / "first" / "confidential"}
    salt = Witness.parse(paths[0].read_bytes()).salt
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in office.folder.rglob("*"):
        if path.is_file() and path not in paths:
            assert salt not in path.read_bytes()
            assert salt.hex().encode() not in path.read_bytes()


def test_the_ledgers_entries_hold_nothing_that_the_data_determine(office: Office) -> None:
    """An entry's hash is published: with nothing random in it, it would be a hash of the data."""
    office.charge("first")
    prints = fingerprints(input_files(office.plan()))
    known = {each["sha256"] for each in prints} | {digest_of_input(prints)}
    witness = Witness.parse(office.witnesses()[0].read_bytes())
    printed = {*witness.checkpoints[0].population.files} if witness.checkpoints[0].population else set()
    assert printed
    for entry in Ledger.open(office.ledger).entries():
        assert not {entry.plan_digest, entry.input_digest, entry.note} & (known | printed)


@pytest.mark.parametrize("damage", ["cut", "altered", "link", "swapped"])
def test_a_damaged_witness_is_named_and_nothing_is_granted(office: Office, damage: str) -> None:
    office.charge("first")
    (path,) = office.data.glob(PATTERN)
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "cut":
        path.write_bytes(b"".join(lines[:1] + lines[2:]))
    elif damage == "altered":
        path.write_bytes(b"".join(lines).replace(b'"1/2"', b'"0"'))
    elif damage == "link":
        path.rename(office.folder / "kept")
        path.symlink_to(office.folder / "kept")
    else:
        path.write_bytes(Witness.begin(office.ledger).text())
    with pytest.raises(BudgetError, match=r"das-witness.*this witness of a ledger is damaged"):
        office.charge("second")


def test_a_witness_cut_at_a_line_is_completed_from_its_other_copy(office: Office) -> None:
    layout = office.charge("first", commit=False)
    (path,) = office.data.glob(PATTERN)
    whole = path.read_bytes()
    for kept in (whole.splitlines(keepends=True)[0], whole[:-1], whole[:-30]):
        path.write_bytes(kept)
        RunIdentity.claim(office.plan(), layout, None).reserve(
            fingerprints(input_files(office.plan())), population(office.plan())
        )
        assert path.read_bytes() == whole


def test_copies_that_contradict_each_other_are_named(office: Office) -> None:
    layout = office.charge("first")
    (path,) = layout.confidential.path.glob(PATTERN)
    witness = Witness.parse(path.read_bytes())
    forged = Witness(witness.id, witness.salt, witness.begun_for).with_line(witness.checkpoints[-1])
    path.write_bytes(forged.text())
    with pytest.raises(BudgetError, match="contradicts its copy"):
        ledger_of(layout.root, verify=True)


def test_a_read_only_input_has_its_witness_elsewhere(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere, so the test says which folder cannot be written."""
    monkeypatch.setattr(ledger_guard, "_can_write", lambda folder: folder != office.data)
    plan = office.plan(rho="1", ledger="kept/ledger.sqlite")
    (office.folder / "kept").mkdir()
    layout = office.charge("first", plan)
    assert not list(office.data.glob(PATTERN))
    state = office.folder / "state" / "das"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    text = ledger_text(*ledger_of(layout.root, verify=True), verified=True)
    for folder in (office.folder / "kept", state, layout.confidential.path):
        assert f"witness: {folder}/.das-witness-" in text
    with pytest.raises(BudgetError, match="holds the people of data set 'data' in the ledger"):
        office.charge("second", office.plan(rho="1", ledger="new.sqlite"))


def test_a_ledger_of_version_0_2_0_goes_on_and_is_watched_from_its_first_use(office: Office) -> None:
    old = Ledger.open(office.ledger)
    run = {"dataset": "data", "framework": "zcdp", "plan_digest": "p", "input_digest": "i"}
    old.reserve(run_id="old", total=Fraction(1), amount=Fraction(1, 2), **run)  # as it was written without witnesses
    old.commit("old")
    copy = office.ledger.read_bytes()
    office.charge("first")
    assert len(office.witnesses()) == 2
    office.ledger.write_bytes(copy)
    with pytest.raises(BudgetError, match=r"entry 4 of the ledger is gone"):
        office.charge("second")
