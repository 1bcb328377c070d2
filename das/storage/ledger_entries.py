"""Ledger entries: their fields, which entry may follow which, and what they add up to; no files, no clock.

The state is a fold over the entries, and the same rules judge an entry before it is written and when it is verified.
`das.storage.ledger` keeps the entries.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

__all__ = ["DECISIONS", "GENESIS", "Entry", "LedgerEntries", "LedgerViolation"]

GENESIS = "0" * 64
"""The head of a ledger without entries."""
DECISIONS = ("lost", "distinct")
"""Kinds of entries by which a person decides, with a reason, what the ledger cannot know."""

# A charge counts in its own framework only: the cost of replacing a record does not bound that of removing one.
_PARAMETER = {"zcdp": "rho", "pure": "epsilon", "zcdp, add-remove": "rho", "pure, add-remove": "epsilon"}
_ACCOUNT_KINDS = ("open", "raise")
_RUN_KINDS = ("reserve", "commit", "release", "testing")
_KINDS = (*_ACCOUNT_KINDS, *DECISIONS, *_RUN_KINDS)
_RUNS_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the ledger.

    `amount` is the new total for "open" and "raise", the charge for "reserve", the same again for "commit" (which
    confirms a charge and adds nothing), what is given back for "release", and zero for "testing".

    Two kinds are decisions of a person, whose reason is the note. "lost": entries are gone, and a checkpoint of the
    ledger's witness (`das.storage.witness`), which `plan_digest` names, says that they charged `amount`; it counts as
    spent. "distinct": the data set holds other people than the one that `plan_digest` names, although they look alike.
    The `input_digest` of "open" and "lost" identifies the witness, so that a missing one is noticed.

    Examples
    --------
    >>> Entry(dataset="pl94", framework="zcdp", kind="open", amount=Fraction(5, 2), time="2020-08-12T00:00:00Z")
    Entry(dataset='pl94', framework='zcdp', kind='open', amount=Fraction(5, 2), ...)
    >>> Entry(dataset="pl94", framework="zcdp", kind="open", amount=2.5, time="2020-08-12T00:00:00Z")
    Traceback (most recent call last):
    ValueError: amount (2.5) must be a Fraction of at least 0
    """

    dataset: str
    framework: str
    kind: str
    amount: Fraction
    time: str
    run_id: str = ""
    plan_digest: str = ""
    input_digest: str = ""
    note: str = ""
    seq: int = 0
    previous: str = GENESIS
    hash: str = ""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.type == "str" and not (isinstance(value, str) and value.isprintable()):
                raise ValueError(f"{item.name} ({value!r}) must be one line of printable text")
        if type(self.amount) is not Fraction or self.amount < 0:
            raise ValueError(f"amount ({self.amount!r}) must be a Fraction of at least 0")
        if self.kind not in _KINDS:
            raise ValueError(f"kind ({self.kind!r}) must be one of {', '.join(_KINDS)}")
        if self.framework not in _PARAMETER:
            raise ValueError(f"framework ({self.framework!r}) must be one of {', '.join(_PARAMETER)}")
        if not self.dataset:
            raise ValueError("dataset must not be empty")
        if bool(self.run_id) != (self.kind in _RUN_KINDS):
            raise ValueError(f"run_id ({self.run_id!r}) does not suit the kind {self.kind!r}")
        if datetime.fromisoformat(self.time).utcoffset() != timedelta(0):
            raise ValueError(f"time ({self.time!r}) must be ISO 8601 in UTC")

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Entry:
        """Read a row; ValueError if `to_row` could not have written it."""
        amount = row["amount"]
        if not isinstance(amount, str) or not re.fullmatch("[0-9]+/[0-9]*[1-9][0-9]*", amount):
            raise ValueError(f"amount ({amount!r}) must be written p/q")
        entry = cls(**{**row, "amount": Fraction(amount)})
        if entry.to_row()["amount"] != amount:
            raise ValueError(f"amount ({amount!r}) must be in lowest terms")
        return entry

    def to_row(self) -> dict[str, Any]:
        """Return the columns, with the amount as exact text "p/q"."""
        row = {item.name: getattr(self, item.name) for item in fields(self)}
        return row | {"amount": f"{self.amount.numerator}/{self.amount.denominator}"}

    def seal(self) -> str:
        """Return the sha256 of the canonical JSON of everything but the hash itself; it covers `previous`."""
        row = self.to_row()
        del row["hash"]
        return hashlib.sha256(json.dumps(row, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def same_charge(self, other: Entry) -> bool:
        """Whether both are the same charge: data set, framework, amount, run, plan and input.

        The input belongs to it because the same noise on changed data would reveal the change.
        """
        return all(
            getattr(self, name) == getattr(other, name)
            for name in ("dataset", "framework", "amount", "run_id", "plan_digest", "input_digest")
        )


@dataclass(frozen=True, slots=True)
class LedgerViolation:
    """The rule that an entry breaks, and what to do instead."""

    reason: str
    remedy: str


@dataclass(slots=True)
class LedgerEntries:
    """The entries so far and what they add up to. A run's last entry is its state; a data set's last total applies.

    Examples
    --------
    >>> ledger = LedgerEntries()
    >>> pl94 = dict(dataset="pl94", framework="zcdp", time="2020-08-12T00:00:00Z")
    >>> ledger.post(ledger.sealed(Entry(kind="open", amount=Fraction(5, 2), **pl94)))
    >>> ledger.post(ledger.sealed(Entry(kind="reserve", run_id="first", amount=Fraction(2), **pl94)))
    >>> ledger.spent["pl94"]
    Fraction(2, 1)
    >>> ledger.violation(Entry(kind="commit", run_id="second", amount=Fraction(2), **pl94)).reason
    "run 'second' has no reservation to commit"
    """

    entries: list[Entry] = field(default_factory=list)
    accounts: dict[str, Entry] = field(default_factory=dict)
    runs: dict[str, Entry] = field(default_factory=dict)
    spent: dict[str, Fraction] = field(default_factory=dict)
    decisions: list[Entry] = field(default_factory=list)
    witness: str = ""

    @property
    def head(self) -> str:
        """The last entry's hash."""
        return self.entries[-1].hash if self.entries else GENESIS

    def sealed(self, entry: Entry) -> Entry:
        """Return `entry` in its place at the end of the chain.

        Times never run backwards. Where the clock is behind the entry before, that entry's time is taken, and the note
        keeps what the clock said: the order of entries is certain, and a wrong clock is not hidden.
        """
        placed = replace(entry, seq=len(self.entries) + 1, previous=self.head)
        if self.entries and _moment(entry) < _moment(self.entries[-1]):
            note = f"{entry.note} (the clock said {entry.time})".strip()
            placed = replace(placed, time=self.entries[-1].time, note=note)
        return replace(placed, hash=placed.seal())

    def post(self, entry: Entry) -> None:
        """Add an entry, whether or not it violates a rule."""
        self.entries.append(entry)
        if entry.kind in _ACCOUNT_KINDS:
            self.accounts[entry.dataset] = entry
        elif entry.kind in DECISIONS:
            self.decisions.append(entry)
        else:
            self.runs[entry.run_id] = entry
        if entry.kind in ("open", "lost") and entry.input_digest:
            self.witness = entry.input_digest
        charge = {"reserve": entry.amount, "lost": entry.amount, "release": -entry.amount}.get(entry.kind, Fraction(0))
        self.spent[entry.dataset] = self.spent.get(entry.dataset, Fraction(0)) + charge

    def violation(self, entry: Entry) -> LedgerViolation | None:
        """Say why `entry` may not come next; None if it may."""
        if entry.kind == "testing":
            return self._against_testing(entry)
        if entry.kind in DECISIONS:
            return self._against_decision(entry)
        account = self.accounts.get(entry.dataset)
        if entry.kind == "open":
            return (
                LedgerViolation(f"data set {entry.dataset!r} is already open", "raise its total") if account else None
            )
        if entry.kind in ("commit", "release"):
            return self._against_conclusion(entry)
        if account is None:
            return LedgerViolation(f"data set {entry.dataset!r} has no total yet", "the first reservation fixes it")
        if entry.framework != account.framework:
            ours, theirs = (f"{e.framework} ({_PARAMETER[e.framework]})" for e in (account, entry))
            return LedgerViolation(
                f"the budget of data set {entry.dataset!r} is kept in {ours}, and {theirs} cannot be added to it",
                f'set privacy.framework = "{account.framework}"',
            )
        if entry.kind == "raise":
            if entry.amount > account.amount and entry.note:
                return None
            reason = (
                f"the total of data set {entry.dataset!r} is {account.amount} and can only be raised, with a reason"
            )
            return LedgerViolation(reason, "give a larger total and say why")
        return self._against_reservation(entry, account)

    def _against_decision(self, entry: Entry) -> LedgerViolation | None:
        if not entry.note or not entry.plan_digest:
            return LedgerViolation("a decision needs a reason, and what it is about", "say why; it is recorded")
        if entry.kind == "distinct" and entry.amount != 0:
            return LedgerViolation("that people are distinct charges nothing", "leave the amount at zero")
        account = self.accounts.get(entry.dataset)
        if entry.kind == "lost" and (account is None or account.framework != entry.framework):
            return LedgerViolation(
                f"data set {entry.dataset!r} is not kept in {entry.framework} here, so a loss cannot be added to it",
                "restore the ledger's latest copy, or give the data set another name",
            )
        return None

    def _against_testing(self, entry: Entry) -> LedgerViolation | None:
        if entry.run_id in self.runs:
            reason = f"run {entry.run_id!r} already has a {self.runs[entry.run_id].kind} entry"
            return LedgerViolation(reason, "give the test run an id of its own")
        if entry.amount != 0:
            return LedgerViolation(f"test run {entry.run_id!r} has an amount", "a test run is charged nothing")
        return None

    def _against_conclusion(self, entry: Entry) -> LedgerViolation | None:
        run = self.runs.get(entry.run_id)
        verb = {"commit": "commit", "release": "give back"}[entry.kind]
        if run is None:
            return LedgerViolation(f"run {entry.run_id!r} has no reservation to {verb}", "reserve first")
        if run.kind != "reserve":
            stands = {"commit": "is committed", "release": "gave its reservation back", "testing": "is a test run"}
            return LedgerViolation(
                f"run {entry.run_id!r} {stands[run.kind]}: there is nothing to {verb}", "start a new run"
            )
        if not run.same_charge(entry):
            return LedgerViolation(f"run {entry.run_id!r} reserved something else", f"{verb} exactly what was reserved")
        return None

    def _against_reservation(self, entry: Entry, account: Entry) -> LedgerViolation | None:
        run = self.runs.get(entry.run_id)
        if run is not None and run.kind != "release":
            reason = f"run {entry.run_id!r} is already in the ledger ({run.kind}) with another plan, input or amount"
            remedy = "restore the plan and the input it began with, or start a new run with an id of its own"
            return LedgerViolation(reason, remedy)
        spent = self.spent[entry.dataset]
        if spent + entry.amount <= account.amount:
            return None
        charged = [r for r in self.runs.values() if r.dataset == entry.dataset and r.kind in ("reserve", "commit")]
        names = [f"{r.run_id} ({r.amount}{', not committed' * (r.kind == 'reserve')})" for r in charged[:_RUNS_LISTED]]
        if len(charged) > _RUNS_LISTED:
            names.append(f"{len(charged) - _RUNS_LISTED} more")
        return LedgerViolation(
            f"the total {_PARAMETER[account.framework]} of data set {entry.dataset!r} is {account.amount}, of which "
            f"{spent} is already spent{' by ' * bool(names)}{', '.join(names)}; "
            f"run {entry.run_id!r} needs {entry.amount} and {account.amount - spent} is left",
            "lower this run's budget, or raise the total, with a reason: das ledger DIR --raise-to TOTAL --reason WHY "
            "(DIR: a run's folder, or the ledger's)",
        )


def _moment(entry: Entry) -> datetime:
    return datetime.fromisoformat(entry.time)
