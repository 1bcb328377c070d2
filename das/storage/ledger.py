"""The ledger: a durable record of how much privacy each run has spent on each data set.

An append-only table in SQLite, each entry sealed with the hash of the one before; `das.storage.ledger_entries` defines
the entries and their rules. See `ledger.md` for what this does and does not protect against.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from das.errors import BudgetError, Problem
from das.storage.ledger_entries import GENESIS, Entry, LedgerEntries

__all__ = ["GENESIS", "Entry", "Ledger"]

# The file's header marks it as a ledger ("dasL"), so that another database is never taken for an empty ledger.
_APPLICATION_ID = 0x6461734C
_COLUMNS = (
    *("seq", "dataset", "framework", "run_id", "kind", "amount", "plan_digest", "input_digest", "note", "time"),
    *("previous", "hash"),
)
_TABLE = ", ".join(f"{name} {'INTEGER PRIMARY KEY' if name == 'seq' else 'TEXT NOT NULL'}" for name in _COLUMNS)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM event ORDER BY seq"
_INSERT = f"INSERT INTO event ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
_REFUSE = "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
_SCHEMA = (
    f"CREATE TABLE event ({_TABLE})",
    f"CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON event {_REFUSE}",
    f"CREATE TRIGGER event_is_never_deleted BEFORE DELETE ON event {_REFUSE}",
    # INSERT OR REPLACE deletes without firing delete triggers, so only the very next entry is admitted.
    "CREATE TRIGGER event_follows_the_last BEFORE INSERT ON event "
    "WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM event) "
    f"OR NEW.previous IS NOT coalesce((SELECT hash FROM event ORDER BY seq DESC LIMIT 1), '{GENESIS}') {_REFUSE}",
)

_RESTORE = "restore the ledger from a copy; a new one for the same data would forget what was spent"
_NOT_A_LEDGER = ("this is not a ledger", "name the ledger's file")
_TROUBLES = {
    sqlite3.SQLITE_BUSY: ("another run holds the ledger", "wait until it ends, then run the same command again"),
    sqlite3.SQLITE_READONLY: ("the ledger cannot be written", "give this user write permission to it and its folder"),
    sqlite3.SQLITE_CANTOPEN: ("the ledger cannot be opened", "check that its folder exists and may be entered"),
    sqlite3.SQLITE_FULL: ("the disk is full", "free space and run the same command again"),
    sqlite3.SQLITE_NOTADB: _NOT_A_LEDGER,
    sqlite3.SQLITE_CORRUPT: ("the ledger is damaged", _RESTORE),
}


@dataclass(frozen=True, slots=True)
class Ledger:
    """The privacy ledger in one file. It holds no connection, so it can be passed to another process.

    A charge stands from the moment it is reserved: a run that dies has spent its budget. Every method
    but `verify` raises BudgetError if the file is locked for longer than `wait_seconds`, cannot be written, is not a
    ledger or does not verify: a damaged ledger grants nothing.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.open(Path(folder.name) / "ledger.sqlite")
    >>> run = dict(dataset="pl94", framework="zcdp", total=Fraction(5, 2), plan_digest="ab", input_digest="cd")
    >>> ledger.reserve(run_id="first", amount=Fraction(2), **run).kind
    'reserve'
    >>> ledger.commit("first").kind
    'commit'
    >>> ledger.spent("pl94"), ledger.verify()
    (Fraction(2, 1), [])
    >>> ledger.reserve(run_id="second", amount=Fraction(1), **run)
    Traceback (most recent call last):
    das.errors.BudgetError: ...: the total rho of data set 'pl94' is 5/2, of which 2 is already spent by first (2);
    run 'second' needs 1 and 1/2 is left; lower this run's budget, ...
    >>> folder.cleanup()
    """

    path: Path
    wait_seconds: float = 60

    @classmethod
    def open(cls, path: Path | str, *, wait_seconds: float = 60) -> Ledger:
        """Open the ledger at `path`; create it if the file does not exist or is empty."""
        ledger = cls(Path(path).resolve(), wait_seconds)
        with ledger._connected("rwc") as connection:
            if not _is_ledger(connection):
                connection.execute("BEGIN IMMEDIATE")
                if not _is_ledger(connection):  # another process may have begun it while this one waited
                    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                        raise ledger._error(*_NOT_A_LEDGER)
                    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    for statement in _SCHEMA:
                        connection.execute(statement)
                connection.execute("COMMIT")
        return ledger

    def reserve(
        self,
        *,
        dataset: str,
        framework: str,
        total: Fraction | None,
        run_id: str,
        amount: Fraction,
        plan_digest: str,
        input_digest: str,
        note: str = "",
        time: str | None = None,
        admit: Callable[[LedgerEntries], str] | None = None,
    ) -> Entry:
        """Charge `amount` to `dataset` before anything is drawn; the first reservation fixes the data set's total.

        A run that states no `total` takes the one that stands; if it is the first, there is room for it and no other.
        Returns the run's entry. For a resumed run that is the one it already has, of kind
        "reserve" or "commit", and nothing is charged again.

        `admit` is asked first, while no other process can write. It sees the entries, raises BudgetError if a witness
        names others, and returns what identifies the witness (`das.storage.ledger_guard`).
        """
        with self._changing() as (connection, posted):
            witness = admit(posted) if admit else ""
            now = _utc(time)
            wanted = Entry(
                dataset=dataset,
                framework=framework,
                kind="reserve",
                amount=amount,
                time=now,
                run_id=run_id,
                plan_digest=plan_digest,
                input_digest=input_digest,
                note=note,
            )
            standing = posted.runs.get(run_id)
            if standing and standing.kind in ("reserve", "commit") and standing.same_charge(wanted):
                return standing
            entries = [
                self._write(connection, posted, entry) for entry in self._charges(posted, wanted, total, witness)
            ]
            return entries[-1]

    def try_reserve(
        self, *, dataset: str, framework: str, total: Fraction | None, run_id: str, amount: Fraction
    ) -> None:
        """Raise the BudgetError that `reserve` would raise for a new run; nothing is written."""
        posted = self._read()
        wanted = Entry(
            dataset=dataset, framework=framework, kind="reserve", amount=amount, time=_utc(None), run_id=run_id
        )
        for entry in self._charges(posted, wanted, total, ""):
            if violation := posted.violation(entry):
                raise self._error(violation.reason, violation.remedy)
            posted.post(posted.sealed(entry))

    def commit(
        self,
        run_id: str,
        *,
        note: str = "",
        time: str | None = None,
        admit: Callable[[LedgerEntries], object] | None = None,
    ) -> Entry:
        """Confirm that the run's measurements are durable; a second commit returns the first."""
        return self._conclude(run_id, kind="commit", note=note, time=time, admit=admit)

    def give_back_undrawn(self, run_id: str, *, note: str = "", time: str | None = None) -> Entry:
        """Give back the reservation of a run that drew no noise, as the caller guarantees; never after a commit."""
        return self._conclude(run_id, kind="release", note=note, time=time)

    def raise_total(self, dataset: str, total: Fraction, reason: str, *, time: str | None = None) -> Entry:
        """Raise the total budget of `dataset`, as an entry with a reason."""
        with self._changing() as (connection, posted):
            if dataset not in posted.accounts:
                raise self._error(f"data set {dataset!r} is not in the ledger", "the first reservation fixes its total")
            account = posted.accounts[dataset]
            raised = replace(account, kind="raise", amount=total, note=reason, input_digest="", time=_utc(time))
            return self._write(connection, posted, raised)

    def decide(self, decisions: Callable[[LedgerEntries], Iterable[Entry]]) -> list[Entry]:
        """Add the entries of a person's decision, which are worked out while no other process can write."""
        with self._changing() as (connection, posted):
            return [self._write(connection, posted, entry) for entry in list(decisions(posted))]

    @contextmanager
    def locked(self) -> Iterator[LedgerEntries]:
        """Read the entries and keep every other process from adding one."""
        with self._changing() as (_, posted):
            yield posted

    def record_testing(
        self,
        *,
        dataset: str,
        framework: str,
        run_id: str,
        plan_digest: str,
        input_digest: str,
        note: str = "",
        time: str | None = None,
    ) -> Entry:
        """List a seeded run. It is charged nothing, because its outputs stay as confidential as its input."""
        with self._changing() as (connection, posted):
            wanted = Entry(
                dataset=dataset,
                framework=framework,
                run_id=run_id,
                kind="testing",
                amount=Fraction(0),
                plan_digest=plan_digest,
                input_digest=input_digest,
                note=note,
                time=_utc(time),
            )
            standing = posted.runs.get(run_id)
            if standing and standing.kind == "testing" and standing.same_charge(wanted):
                return standing
            return self._write(connection, posted, wanted)

    def spent(self, dataset: str) -> Fraction:
        """Return what `dataset` has been charged: commits and outstanding reservations; 0 if it is not known."""
        return self._read().spent.get(dataset, Fraction(0))

    def entries(self, dataset: str | None = None) -> tuple[Entry, ...]:
        """Return the entries of one data set, or all, oldest first."""
        return tuple(entry for entry in self._read().entries if dataset in (None, entry.dataset))

    @property
    def head(self) -> str:
        """The last entry's hash. Published in a manifest, it lets anyone detect a truncated ledger."""
        return self._read().head

    def verify(self, expected_head: str | None = None) -> list[Problem]:
        """Check every hash, sum and state, and that the entry whose hash is `expected_head` is still there."""
        try:
            with self._connected("rw") as connection:
                posted, problems = self._examine(connection)
        except BudgetError as error:
            return list(error.problems)
        if expected_head not in (None, GENESIS, *(entry.hash for entry in posted.entries)):
            reason = f"entry {expected_head}, to which a release points, is gone: the ledger was cut short or replaced"
            problems.append(Problem(str(self.path), reason, _RESTORE))
        return problems

    def _error(self, reason: str, remedy: str) -> BudgetError:
        return BudgetError(Problem(str(self.path), reason, remedy))

    @contextmanager
    def _connected(self, mode: str) -> Iterator[sqlite3.Connection]:
        try:
            uri = f"{self.path.as_uri()}?mode={mode}"
            connection = sqlite3.connect(uri, uri=True, timeout=self.wait_seconds, isolation_level=None)
            try:
                # With a rollback journal, deleting the journal is the commit; EXTRA makes that survive a power cut.
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
                yield connection
            finally:
                connection.close()  # rolls back whatever was not committed
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's message may quote the damaged bytes
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # the low byte is the primary code
            reason, remedy = _TROUBLES.get(code, ("the ledger cannot be used", _RESTORE))
            raise self._error(f"{reason} ({error})", remedy) from error

    @contextmanager
    def _changing(self) -> Iterator[tuple[sqlite3.Connection, LedgerEntries]]:
        with self._connected("rw") as connection:
            connection.execute("BEGIN IMMEDIATE")  # no other process may spend between our read and our write
            posted = self._sound(connection)
            try:
                yield connection, posted
            except ValueError as error:
                raise self._error(str(error), "correct it and run the command again") from error
            connection.execute("COMMIT")

    def _read(self) -> LedgerEntries:
        with self._connected("rw") as connection:
            return self._sound(connection)

    def _sound(self, connection: sqlite3.Connection) -> LedgerEntries:
        posted, problems = self._examine(connection)
        if problems:
            raise BudgetError(problems)
        return posted

    def _examine(self, connection: sqlite3.Connection) -> tuple[LedgerEntries, list[Problem]]:
        if not _is_ledger(connection):
            raise self._error(*_NOT_A_LEDGER)
        damage = [(f"{self.path}", text) for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
        schema = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
        if schema != set(_SCHEMA):
            damage.append((f"{self.path}", "the table or the triggers that forbid changes were altered"))
        posted, last, previous = LedgerEntries(), 0, GENESIS
        readable = _SCHEMA[0] in schema
        for values in connection.execute(_SELECT) if readable else ():
            row = dict(zip(_COLUMNS, values, strict=True))
            where = f"{self.path}, entry {row['seq']}"
            if row["seq"] != last + 1:
                damage.append((where, f"entry {last + 1} should come before it and is missing"))
            if row["previous"] != previous:
                damage.append((where, "it does not follow from the entry before it"))
            last, previous = row["seq"], row["hash"]
            try:
                entry = Entry.from_row(row)
            except ValueError as error:
                damage.append((where, f"it cannot be read: {error}"))
                continue
            if entry.hash != entry.seal():
                damage.append((where, "it was altered after it was written"))
            if violation := posted.violation(entry):
                damage.append((where, violation.reason))
            posted.post(entry)
        return posted, [Problem(where, reason, _RESTORE) for where, reason in damage]

    def _charges(self, posted: LedgerEntries, wanted: Entry, total: Fraction | None, witness: str) -> list[Entry]:
        """List the entries of a reservation: its charge, and before it the total of a data set that is not open yet."""
        dataset, account = wanted.dataset, posted.accounts.get(wanted.dataset)
        if account is None:
            opening = wanted.amount if total is None else total
            opened = Entry(
                dataset=dataset,
                framework=wanted.framework,
                kind="open",
                amount=opening,
                time=wanted.time,
                input_digest=witness,
            )
            return [opened, wanted]
        if account.framework == wanted.framework and total not in (None, account.amount):
            reason = f"the total of data set {dataset!r} is fixed at {account.amount}, and this run states {total}"
            raise self._error(reason, "state that total, or raise it, with a reason")
        return [wanted]

    def _conclude(
        self,
        run_id: str,
        *,
        kind: str,
        note: str,
        time: str | None,
        admit: Callable[[LedgerEntries], object] | None = None,
    ) -> Entry:
        with self._changing() as (connection, posted):
            standing = posted.runs.get(run_id)
            if standing is None:
                raise self._error(f"run {run_id!r} is not in the ledger", "reserve first")
            if standing.kind == kind:
                return standing
            if admit:
                admit(posted)
            return self._write(connection, posted, replace(standing, kind=kind, note=note, time=_utc(time)))

    def _write(self, connection: sqlite3.Connection, posted: LedgerEntries, wanted: Entry) -> Entry:
        if violation := posted.violation(wanted):
            raise self._error(violation.reason, violation.remedy)
        entry = posted.sealed(wanted)
        connection.execute(_INSERT, entry.to_row())
        posted.post(entry)
        return entry


def _is_ledger(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA application_id").fetchone() == (_APPLICATION_ID,))


def _utc(time: str | None) -> str:
    return datetime.now(UTC).isoformat(timespec="seconds") if time is None else time
