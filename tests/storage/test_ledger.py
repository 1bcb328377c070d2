"""The ledger against a dict, against two processes, against kill -9, and against someone with a database editor."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from das.errors import BudgetError
from das.storage.ledger import GENESIS, Entry, Ledger

PL94 = {"dataset": "pl94", "framework": "zcdp", "total": Fraction(5, 2), "plan_digest": "p", "input_digest": "i"}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger.sqlite")


def reserve(ledger: Ledger, run_id: str, amount: Fraction = Fraction(1), **changes: object) -> Entry:
    return ledger.reserve(run_id=run_id, amount=amount, **PL94 | changes)  # type: ignore[arg-type]


def run_script(text: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# -- behaviour ---------------------------------------------------------------------------------------------------------


def test_a_resumed_run_is_charged_once(ledger: Ledger) -> None:
    first = reserve(ledger, "a")
    assert reserve(ledger, "a") == first
    committed = ledger.commit("a")
    assert ledger.commit("a") == committed
    assert reserve(ledger, "a") == committed
    assert ledger.spent("pl94") == 1
    assert [entry.kind for entry in ledger.entries()] == ["open", "reserve", "commit"]
    assert ledger.verify() == []


@pytest.mark.parametrize(
    "change", [{"plan_digest": "q"}, {"input_digest": "j"}, {"amount": Fraction(1, 2)}, {"dataset": "dhc"}]
)
def test_a_run_may_not_change_what_it_reserved(ledger: Ledger, change: dict[str, object]) -> None:
    reserve(ledger, "a")
    with pytest.raises(BudgetError, match="run 'a' is already in the ledger"):
        reserve(ledger, "a", **change)  # type: ignore[arg-type]
    assert [entry.kind for entry in ledger.entries()] == ["open", "reserve"]


def test_the_last_of_the_budget_can_be_spent_and_not_a_hair_more(ledger: Ledger) -> None:
    hair = Fraction(1, 10**40)  # invisible to any float
    reserve(ledger, "a", Fraction(5, 2) - hair)
    with pytest.raises(BudgetError, match="is left"):
        reserve(ledger, "b", 2 * hair)
    reserve(ledger, "b", hair)
    assert ledger.spent("pl94") == Fraction(5, 2)


def test_a_refusal_says_total_spent_by_whom_and_what_to_do(ledger: Ledger) -> None:
    reserve(ledger, "county-tables", Fraction(3, 2))
    ledger.commit("county-tables")
    reserve(ledger, "died", Fraction(1, 2))
    with pytest.raises(BudgetError) as caught:
        reserve(ledger, "new", Fraction(3, 4))
    assert caught.value.exit_code == 5
    (problem,) = caught.value.problems
    assert problem.where == str(ledger.path)
    assert problem.reason == (
        "the total rho of data set 'pl94' is 5/2, of which 2 is already spent by county-tables (3/2), "
        "died (1/2, not committed); run 'new' needs 3/4 and 1/2 is left"
    )
    assert "--raise-to" in problem.remedy
    assert "raise the total" in problem.remedy


def test_many_runs_are_summarised(ledger: Ledger) -> None:
    for number in range(12):
        reserve(ledger, f"r{number}", Fraction(5, 24))
    with pytest.raises(BudgetError, match=r"r9 \(5/24, not committed\), 2 more;"):
        reserve(ledger, "late", Fraction(1, 24))


def test_a_first_run_beyond_its_own_total_opens_nothing(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="0 is already spent; run 'a' needs 3"):
        reserve(ledger, "a", Fraction(3))
    assert ledger.entries() == ()
    assert ledger.head == GENESIS


def test_frameworks_do_not_mix(ledger: Ledger) -> None:
    reserve(ledger, "a")
    with pytest.raises(BudgetError, match=r"kept in zcdp \(rho\), and pure \(epsilon\) cannot be added"):
        reserve(ledger, "b", framework="pure", total=Fraction(1))


def test_the_total_is_fixed_by_first_use_and_raised_on_the_record(ledger: Ledger) -> None:
    reserve(ledger, "a", Fraction(5, 2))
    with pytest.raises(BudgetError, match="fixed at 5/2, and this run states 3"):
        reserve(ledger, "b", Fraction(1, 2), total=Fraction(3))
    for bad_total, reason in ((Fraction(5, 2), "why"), (Fraction(2), "why"), (Fraction(3), "")):
        with pytest.raises(BudgetError, match="can only be raised, with a reason"):
            ledger.raise_total("pl94", bad_total, reason)
    with pytest.raises(BudgetError, match="'dhc' is not in the ledger"):
        ledger.raise_total("dhc", Fraction(3), "why")
    assert ledger.raise_total("pl94", Fraction(3), "the panel of 3 May agreed").note == "the panel of 3 May agreed"
    reserve(ledger, "b", Fraction(1, 2), total=Fraction(3))
    assert reserve(ledger, "a", Fraction(5, 2)).seq == 2, "a run begun under the old total is resumed"
    assert ledger.verify() == []


def test_only_an_undrawn_reservation_is_given_back(ledger: Ledger) -> None:
    reserve(ledger, "a", Fraction(2))
    given = ledger.give_back_undrawn("a", note="infeasible constraints")
    assert ledger.give_back_undrawn("a") == given
    assert ledger.spent("pl94") == 0
    with pytest.raises(BudgetError, match="gave its reservation back"):
        ledger.commit("a")
    reserve(ledger, "a", Fraction(1))  # it may be tried again, even with another plan: nothing was drawn
    ledger.commit("a")
    with pytest.raises(BudgetError, match="is committed"):
        ledger.give_back_undrawn("a")
    with pytest.raises(BudgetError, match="not in the ledger"):
        ledger.commit("unknown")
    assert ledger.spent("pl94") == 1
    assert ledger.verify() == []


def test_a_test_run_is_listed_and_free(ledger: Ledger) -> None:
    run = {"dataset": "pl94", "framework": "zcdp", "run_id": "seeded", "plan_digest": "p", "input_digest": "i"}
    entry = ledger.record_testing(**run, note="seed 7")
    assert ledger.record_testing(**run) == entry
    assert (entry.kind, entry.amount, ledger.spent("pl94")) == ("testing", 0, 0)
    for forbidden in (ledger.commit, ledger.give_back_undrawn):
        with pytest.raises(BudgetError, match="is a test run"):
            forbidden("seeded")
    with pytest.raises(BudgetError, match=r"already in the ledger \(testing\)"):
        reserve(ledger, "seeded")
    reserve(ledger, "real")
    with pytest.raises(BudgetError, match="already has a reserve entry"):
        ledger.record_testing(**run | {"run_id": "real"})
    assert ledger.verify() == []


@pytest.mark.parametrize(
    "change",
    [
        {"amount": 0.5},
        {"amount": Fraction(-1)},
        {"total": 2.5},
        {"framework": "gdp"},
        {"dataset": ""},
        {"run_id": ""},
        {"dataset": "two\nlines"},
        {"note": "\ud800"},
        {"time": "yesterday"},
        {"time": "2020-08-12T00:00:00"},
        {"time": "2020-08-12T00:00:00+02:00"},
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(ledger: Ledger, change: dict[str, object]) -> None:
    with pytest.raises(BudgetError):
        ledger.reserve(**{"run_id": "a", "amount": Fraction(1), **PL94, **change})  # type: ignore[arg-type]
    assert ledger.entries() == ()


def test_data_sets_are_apart_and_names_may_be_any_language(ledger: Ledger) -> None:
    reserve(ledger, "a", dataset="Zählung 'x'; --", time="2020-08-12T00:00:00Z")
    reserve(ledger, "b", dataset="dhc", framework="pure", total=Fraction(4))
    assert [entry.run_id for entry in ledger.entries("dhc")] == ["", "b"]
    assert ledger.spent("Zählung 'x'; --") == ledger.spent("dhc") == 1
    assert ledger.entries()[0].time == "2020-08-12T00:00:00Z"
    assert pickle.loads(pickle.dumps(ledger)).entries() == ledger.entries()
    assert ledger.verify() == []


def test_times_never_run_backwards_and_a_wrong_clock_is_not_hidden(ledger: Ledger) -> None:
    reserve(ledger, "a", time="2026-05-03T12:00:00Z")
    late = ledger.commit("a", time="1970-01-01T00:00:07+00:00")
    assert late.time == "2026-05-03T12:00:00Z"
    assert late.note == "(the clock said 1970-01-01T00:00:07+00:00)"
    assert reserve(ledger, "b", note="release x", time="2026-05-03T11:59:59Z").note.startswith("release x (the clock ")
    assert reserve(ledger, "c", Fraction(1, 2), note="on", time="2026-05-03T12:00:00+00:00").note == "on"
    assert reserve(ledger, "b", time="1999-01-01T00:00:00Z").seq == 4, (
        "a resumed run is the same, whatever the clock says"
    )
    moments = [entry.time[:19] for entry in ledger.entries()]
    assert moments == sorted(moments)
    assert ledger.verify() == []


def test_what_would_be_refused_is_known_without_a_charge(ledger: Ledger) -> None:
    run = {"dataset": "pl94", "framework": "zcdp", "total": Fraction(5, 2), "run_id": "a"}
    ledger.try_reserve(amount=Fraction(5, 2), **run)  # type: ignore[arg-type]
    reserve(ledger, "first", Fraction(2))
    before = ledger.entries()
    for change in ({"amount": Fraction(1)}, {"total": Fraction(3)}, {"framework": "pure"}):
        with pytest.raises(BudgetError):
            ledger.try_reserve(**run | {"amount": Fraction(1, 2)} | change)  # type: ignore[arg-type]
    ledger.try_reserve(amount=Fraction(1, 2), **run)  # type: ignore[arg-type]
    assert ledger.entries() == before


# -- a model -----------------------------------------------------------------------------------------------------------


class AgainstADict(RuleBasedStateMachine):
    """The same calls on a dict that knows only the sentence of the specification."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.folder = tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)
        self.ledger = Ledger.open(Path(self.folder.name) / "ledger.sqlite")
        self.accounts: dict[str, tuple[str, Fraction]] = {}
        self.runs: dict[str, tuple[str, tuple[object, ...]]] = {}
        self.heads = {GENESIS}

    def teardown(self) -> None:
        self.folder.cleanup()

    def spent(self, dataset: str) -> Fraction:
        charges = [what for state, what in self.runs.values() if state in ("reserved", "committed")]
        return sum((what[2] for what in charges if what[0] == dataset), Fraction(0))  # type: ignore[misc]

    def check(self, allowed: bool, call: str, **arguments: object) -> None:
        if allowed:
            getattr(self.ledger, call)(**arguments)
        else:
            with pytest.raises(BudgetError):
                getattr(self.ledger, call)(**arguments)

    datasets = st.sampled_from(["x", "y"])
    frameworks = st.sampled_from(["zcdp", "zcdp", "zcdp", "pure"])
    totals = st.sampled_from([Fraction(1), Fraction(1), Fraction(1), Fraction(4, 3)])
    run_ids = st.sampled_from(["a", "b", "c", "d"])
    amounts = st.sampled_from([Fraction(1, 3), Fraction(1, 2), Fraction(1, 2) + Fraction(1, 10**30), Fraction(0)])
    plans = st.sampled_from(["p", "p", "q"])

    @rule(ds=datasets, framework=frameworks, total=totals, run=run_ids, amount=amounts, plan=plans)
    def reserve(self, ds: str, framework: str, total: Fraction, run: str, amount: Fraction, plan: str) -> None:
        what = (ds, framework, amount, plan)
        state, standing = self.runs.get(run, ("unknown", ()))
        resumed = state in ("reserved", "committed") and standing == what
        account = self.accounts.get(ds, (framework, total))
        new = state in ("unknown", "given back") and account == (framework, total)
        new = new and self.spent(ds) + amount <= total
        more = {"dataset": ds, "framework": framework, "total": total, "plan_digest": plan, "input_digest": "i"}
        self.check(resumed or new, "reserve", run_id=run, amount=amount, **more)
        if new:
            self.accounts[ds] = account
            self.runs[run] = ("reserved", what)

    @rule(run=run_ids)
    def commit(self, run: str) -> None:
        state, what = self.runs.get(run, ("unknown", ()))
        self.check(state in ("reserved", "committed"), "commit", run_id=run)
        if state == "reserved":
            self.runs[run] = ("committed", what)

    @rule(run=run_ids)
    def give_back(self, run: str) -> None:
        state, what = self.runs.get(run, ("unknown", ()))
        self.check(state in ("reserved", "given back"), "give_back_undrawn", run_id=run)
        if state == "reserved":
            self.runs[run] = ("given back", what)

    @rule(ds=datasets, total=totals)
    def raise_total(self, ds: str, total: Fraction) -> None:
        allowed = ds in self.accounts and total > self.accounts[ds][1]
        self.check(allowed, "raise_total", dataset=ds, total=total, reason="because")
        if allowed:
            self.accounts[ds] = (self.accounts[ds][0], total)

    @rule(ds=datasets, run=run_ids)
    def test(self, ds: str, run: str) -> None:
        state, what = self.runs.get(run, ("unknown", (ds,)))
        allowed = state == "unknown" or (state == "testing" and what == (ds,))
        more = {"framework": "zcdp", "plan_digest": "p", "input_digest": "i"}
        self.check(allowed, "record_testing", dataset=ds, run_id=run, **more)
        if allowed:
            self.runs[run] = ("testing", (ds,))

    @invariant()
    def agrees(self) -> None:
        for dataset in ("x", "y"):
            assert self.ledger.spent(dataset) == self.spent(dataset)
            assert self.spent(dataset) <= self.accounts.get(dataset, ("", Fraction(0)))[1]
        self.heads.add(self.ledger.head)
        assert [problem for head in self.heads for problem in self.ledger.verify(head)] == []


TestAgainstADict = AgainstADict.TestCase
TestAgainstADict.settings = settings(max_examples=30, stateful_step_count=20, suppress_health_check=list(HealthCheck))


# -- other processes ---------------------------------------------------------------------------------------------------

RACE = """
    import multiprocessing, sys
    from fractions import Fraction
    from das.errors import BudgetError
    from das.storage.ledger import Ledger

    def racer(name, path, start, rounds, won):
        ledger = Ledger.open(path)
        for number in range(rounds):
            start.wait()
            try:
                ledger.reserve(dataset=f"d{number}", framework="zcdp", total=Fraction(1), run_id=f"{name}{number}",
                               amount=Fraction(2, 3), plan_digest="p", input_digest="i")
                won.put(number)
            except BudgetError as error:
                if "is left" not in str(error):
                    raise

    fork = multiprocessing.get_context("fork")
    start, won, rounds = fork.Barrier(2), fork.Queue(), int(sys.argv[2])
    racers = [fork.Process(target=racer, args=(name, sys.argv[1], start, rounds, won)) for name in "ab"]
    [process.start() for process in racers]
    print(sorted(won.get() for _ in range(rounds)))
    [process.join() for process in racers]
    print([process.exitcode for process in racers], won.empty())
"""


def test_two_processes_race_for_the_last_of_the_budget(tmp_path: Path) -> None:
    rounds = 20  # they also race to create the file
    output, _ = run_script(RACE, tmp_path / "ledger.sqlite", rounds).communicate(timeout=60)
    assert output.splitlines() == [str(list(range(rounds))), "[0, 0] True"]
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    assert all(ledger.spent(f"d{number}") == Fraction(2, 3) for number in range(rounds))
    assert ledger.verify() == []


RESERVE_AND_DIE = """
    import os, signal, sys
    from fractions import Fraction
    from das.storage.ledger import Ledger

    Ledger.open(sys.argv[1]).reserve(dataset="pl94", framework="zcdp", total=Fraction(5, 2), run_id="dies",
        amount=Fraction(2), plan_digest="p", input_digest="i")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_killed_between_reserve_and_commit_stays_charged(tmp_path: Path) -> None:
    with run_script(RESERVE_AND_DIE, tmp_path / "ledger.sqlite") as child:
        assert child.wait(timeout=60) == -signal.SIGKILL
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    assert ledger.spent("pl94") == 2
    with pytest.raises(BudgetError, match=r"dies \(2, not committed\)"):
        reserve(ledger, "other")
    assert reserve(ledger, "dies", Fraction(2)).seq == 2, "the resumed run is the same run"
    ledger.commit("dies")
    assert ledger.spent("pl94") == 2
    assert ledger.verify() == []


RESERVE_FOREVER = """
    import itertools, sys
    from fractions import Fraction
    from das.storage.ledger import Ledger

    ledger = Ledger.open(sys.argv[1])
    for number in itertools.count():
        ledger.reserve(dataset="pl94", framework="zcdp", total=Fraction(10**9), run_id=f"r{number}",
            amount=Fraction(1), plan_digest="p", input_digest="i")
        print(number, flush=True)
"""


@pytest.mark.parametrize("milliseconds", [0, 3, 11, 40])
def test_what_was_acknowledged_survives_kill_9_at_any_moment(tmp_path: Path, milliseconds: int) -> None:
    child = run_script(RESERVE_FOREVER, tmp_path / "ledger.sqlite")
    if child.stdout is None:
        pytest.fail("the child has no standard output")
    child.stdout.readline()
    time.sleep(milliseconds / 1000)
    child.kill()
    acknowledged = 1 + len(child.communicate()[0].splitlines())
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    assert acknowledged <= ledger.spent("pl94") <= acknowledged + 1
    assert ledger.verify() == []


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def used(ledger: Ledger) -> Ledger:
    reserve(ledger, "a")
    ledger.commit("a")
    reserve(ledger, "b", Fraction(1, 2))
    return ledger


@pytest.fixture
def editor(used: Ledger) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(used.path)
    yield connection
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET amount = '0/1' WHERE seq = 2",
        "UPDATE OR REPLACE event SET seq = 1 WHERE seq = 2",
        "DELETE FROM event WHERE seq = 4",
        "DELETE FROM event",
        "INSERT OR REPLACE INTO event SELECT * FROM event WHERE seq = 2",
        "REPLACE INTO event SELECT 2, dataset, framework, run_id, kind, '0/1', '', '', '', time, previous, hash "
        "FROM event WHERE seq = 2",
        "INSERT INTO event SELECT 5, dataset, framework, run_id, kind, '0/1', '', '', '', time, previous, hash "
        "FROM event WHERE seq = 4",
        "INSERT INTO event SELECT 9, dataset, framework, run_id, kind, '0/1', '', '', '', time, hash, hash "
        "FROM event WHERE seq = 4",
    ],
)
def test_the_database_itself_refuses(used: Ledger, editor: sqlite3.Connection, statement: str) -> None:
    before = used.entries()
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        editor.execute(statement)
    assert used.entries() == before


def without_triggers(editor: sqlite3.Connection) -> list[str]:
    triggers = editor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        editor.execute(f"DROP TRIGGER {name}")
    return [sql for _, sql in triggers]


def tamper(editor: sqlite3.Connection, statement: str) -> None:
    triggers = without_triggers(editor)
    editor.execute(statement)
    for sql in triggers:
        editor.execute(sql)
    editor.commit()


@pytest.mark.parametrize(
    ("statement", "where", "finding"),
    [
        ("UPDATE event SET amount = '1/4' WHERE seq = 2", "entry 2", "altered after it was written"),
        ("UPDATE event SET amount = '2/2' WHERE seq = 2", "entry 2", "lowest terms"),
        ("UPDATE event SET amount = '1/0' WHERE seq = 2", "entry 2", "cannot be read"),
        ("UPDATE event SET amount = 'much' WHERE seq = 2", "entry 2", "cannot be read"),
        ("UPDATE event SET amount = '1e999999999' WHERE seq = 2", "entry 2", "cannot be read"),
        ("UPDATE event SET amount = x'ff' WHERE seq = 2", "entry 2", "cannot be read"),
        ("UPDATE event SET note = CAST(x'ff' AS TEXT) WHERE seq = 2", "entry 2", "altered"),
        ("UPDATE event SET note = 'harmless' WHERE seq = 4", "entry 4", "altered after it was written"),
        ("UPDATE event SET kind = 'gift' WHERE seq = 2", "entry 2", "must be one of"),
        ("UPDATE event SET hash = previous WHERE seq = 2", "entry 3", "does not follow"),
        ("DELETE FROM event WHERE seq = 2", "entry 3", "entry 2 should come before it"),
        ("DELETE FROM event WHERE seq = 2", "entry 3", "has no reservation to commit"),
        ("DELETE FROM event WHERE seq = 1", "entry 2", "has no total yet"),
        ("UPDATE event SET seq = -3 WHERE seq = 1", "entry -3", "entry 1 should come before it"),
        ("UPDATE event SET amount = '5/4' WHERE seq = 1", "entry 4", "is left"),
    ],
)
def test_tampering_is_found(used: Ledger, editor: sqlite3.Connection, statement: str, where: str, finding: str) -> None:
    tamper(editor, statement)
    problems = used.verify()
    assert any(p.where.endswith(where) and finding in p.reason and "restore" in p.remedy for p in problems), problems
    for use in (lambda: used.spent("pl94"), lambda: used.head, lambda: reserve(used, "c"), lambda: used.commit("b")):
        with pytest.raises(BudgetError):
            use()


def test_every_single_changed_cell_is_found(used: Ledger, editor: sqlite3.Connection) -> None:
    columns = [row[1] for row in editor.execute("PRAGMA table_info(event)")]
    for column in columns:
        changed = "seq + 10" if column == "seq" else f"{column} || 'x'"
        for seq in range(1, 5):
            tamper(editor, f"UPDATE event SET {column} = {changed} WHERE seq = {seq}")
            assert [p for p in used.verify() if ", entry " in p.where], (column, seq)
            before = "seq - 10" if column == "seq" else f"substr({column}, 1, length({column}) - 1)"
            tamper(editor, f"UPDATE event SET {column} = {before} WHERE seq = {seq + 10 * (column == 'seq')}")
    assert len(columns) == 12
    assert used.verify() == []


def test_dropped_triggers_are_found(used: Ledger, editor: sqlite3.Connection) -> None:
    without_triggers(editor)
    editor.commit()
    assert ["triggers that forbid changes were altered" in p.reason for p in used.verify()] == [True]
    with pytest.raises(BudgetError):
        reserve(used, "c", Fraction(1, 4))


def test_truncation_is_found_only_by_a_published_head(used: Ledger, editor: sqlite3.Connection) -> None:
    heads = [entry.hash for entry in used.entries()]
    assert used.head == heads[-1]
    assert [used.verify(expected_head=head) for head in (GENESIS, *heads)] == [[]] * 5, "a ledger may have grown since"
    tamper(editor, "DELETE FROM event WHERE seq = 4")
    assert used.verify() == used.verify(heads[2]) == []
    (problem,) = used.verify(expected_head=heads[3])
    assert "cut short or replaced" in problem.reason


def test_a_ledger_rewritten_with_correct_hashes_is_found_by_a_published_head(used: Ledger, tmp_path: Path) -> None:
    other = Ledger.open(tmp_path / "forged.sqlite")
    reserve(other, "a", Fraction(1, 4))
    assert other.verify() == []
    assert len(other.verify(expected_head=used.head)) == 1


def test_other_files_are_not_ledgers(tmp_path: Path, used: Ledger) -> None:
    text = tmp_path / "text"
    text.write_text("not a database, and long enough to have a header " * 9)
    database = tmp_path / "other.sqlite"
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    for path in (text, database):
        before = path.read_bytes()
        with pytest.raises(BudgetError, match="not a ledger"):
            Ledger.open(path)
        assert path.read_bytes() == before
        assert ["not a ledger" in p.reason for p in Ledger(path).verify()] == [True]
    for path in (tmp_path, tmp_path / "absent" / "ledger.sqlite"):
        with pytest.raises(BudgetError, match="cannot be opened"):
            Ledger.open(path)
    used.path.unlink()
    with pytest.raises(BudgetError, match="cannot be opened"):
        used.spent("pl94")  # a ledger that vanished is not begun anew
    assert ["cannot be opened" in p.reason for p in used.verify()] == [True]


def test_damaged_bytes_are_described_or_harmless(used: Ledger) -> None:
    whole, entries, described = used.path.read_bytes(), used.entries(), 0
    rng = random.Random(20200812)
    for trial in range(600):
        start, length = rng.randrange(len(whole)), rng.choice([1, 4, 64])
        end = min(start + length, len(whole))
        used.path.write_bytes(whole[:start] + rng.randbytes(end - start) + whole[end:])
        problems = used.verify()  # never raises
        described += bool(problems)
        assert problems or used.entries() == entries, f"trial {trial}: bytes {start} to {end}"
    assert described > 100
    used.path.write_bytes(whole[: len(whole) // 2])
    assert used.verify()
    with pytest.raises(BudgetError):
        reserve(used, "c")


def test_a_renamed_column_is_described(used: Ledger, editor: sqlite3.Connection) -> None:
    tamper(editor, "ALTER TABLE event RENAME COLUMN note TO remark")
    assert ["altered" in problem.reason for problem in used.verify()] == [True]


def test_a_locked_ledger_is_named_as_such(used: Ledger, editor: sqlite3.Connection) -> None:
    editor.execute("BEGIN IMMEDIATE")
    hurried = Ledger.open(used.path, wait_seconds=0.05)
    with pytest.raises(BudgetError, match=r"another run holds the ledger .*wait until it ends"):
        reserve(hurried, "c")
    assert hurried.spent("pl94") == Fraction(3, 2), "reading goes on"


AS_NOBODY = """
    import os, sys
    from fractions import Fraction
    from das.errors import BudgetError
    from das.storage.ledger import Ledger

    if os.getuid() == 0:
        os.setuid(65534)
    ledger = Ledger.open(sys.argv[1])
    print(ledger.spent("pl94"), ledger.verify())
    try:
        ledger.raise_total("pl94", Fraction(9), "because")
    except BudgetError as error:
        print(error)
"""


def test_a_read_only_ledger_can_be_read(used: Ledger) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        path.write_bytes(used.path.read_bytes())
        path.chmod(0o444)
        Path(folder).chmod(0o755)
        output, _ = run_script(AS_NOBODY, path).communicate(timeout=60)
    assert output.splitlines()[0] == "3/2 []"
    assert "the ledger cannot be written" in output
    assert "write permission" in output
