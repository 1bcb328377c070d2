"""Fingerprints against sets, the witness file against every cut, and ledger and witness together against a model."""

from __future__ import annotations

import os
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from das.errors import BudgetError
from das.storage.ledger import Ledger
from das.storage.ledger_entries import LedgerEntries
from das.storage.ledger_guard import LedgerGuard
from das.storage.population import SAMPLED, Population
from das.storage.witness import PATTERN, Account, Checkpoint, Damaged, Witness

SALT = bytes(range(32))


def people(*totals: str, files: tuple[str, ...] = ()) -> Population:
    """A population of "geocode total" in one level."""
    codes, counts = zip(*(each.split() for each in totals), strict=True) if totals else ((), ())
    return Population(files, ((np.array(codes, np.str_), np.array(counts, np.int64)),))


# -- fingerprints ------------------------------------------------------------------------------------------------------

geounits = st.frozensets(st.sampled_from([f"{code} {total}" for code in range(6) for total in (1, 2)]), max_size=12)


@given(one=geounits, two=geounits)
def test_small_populations_are_compared_exactly(one: frozenset[str], two: frozenset[str]) -> None:
    prints = [people(*totals).fingerprint(SALT) for totals in (one, two)]
    assert prints[0].same_people(prints[1]) == (2 * len(one & two) > min(len(one), len(two)))
    assert prints[0].same_people(prints[1]) == prints[1].same_people(prints[0])


@pytest.mark.parametrize(("size", "shared", "same"), [(20_000, 0.6, True), (20_000, 0.4, False), (60, 1.0, True)])
def test_large_populations_are_compared_by_sample(size: int, shared: float, same: bool) -> None:
    """Also a large one with one of another size; the sample is the same under a salt, whoever draws it."""
    nation = [f"{number} {number % 7 + 1}" for number in range(30_000)]
    kept = int(size * shared)
    part = nation[:kept] + [f"{number} 99" for number in range(size - kept)]
    one, two = (people(*each).fingerprint(SALT) for each in (nation, part))
    assert len(one.totals) <= SAMPLED
    assert one.same_people(two) == two.same_people(one) == same


def test_a_file_is_recognised_and_salts_do_not_mix() -> None:
    one = people("1 3", files=("aa", "bb"))
    two = people("1 4", "2 5", files=("bb",))
    assert one.fingerprint(SALT).same_people(two.fingerprint(SALT))
    assert not one.fingerprint(SALT).same_people(one.fingerprint(SALT[::-1]))
    assert "aa" not in str(one.fingerprint(SALT))


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def witness() -> Witness:
    begun = Witness.begin(Path("ledger.sqlite"))
    known = people("1 3", "2 0", files=("aa",)).fingerprint(begun.salt)
    accounts = {"Zählung": Account("zcdp", Fraction(5, 2), Fraction(1, 3))}
    first = Checkpoint(ledger="l", seq=2, head="ab", accounts=accounts, run_id="r", dataset="Zählung", population=known)
    return begun.with_line(first).with_line(Checkpoint(ledger="l", seq=3, head="cd", accounts=accounts))


def test_a_cut_anywhere_is_a_shorter_witness_or_none(witness: Witness) -> None:
    """A writer that was killed leaves a beginning of the file."""
    text = witness.text()
    for length in range(len(text)):
        try:
            part = Witness.parse(text[:length])
        except Damaged:
            assert length <= len(witness.lines()[0])
            continue
        assert witness.continues(part)
        assert len(part.checkpoints) == text[:length].count(b"\n") - 1


def test_a_byte_that_changed_is_noticed(witness: Witness) -> None:
    text = witness.text()
    for place in np.random.default_rng(7).integers(0, len(text) - 1, 150):
        changed = bytearray(text)
        changed[place] ^= 1
        try:
            other = Witness.parse(bytes(changed))
        except Damaged:
            continue
        assert not witness.continues(other)
        assert not other.continues(witness)


# -- ledger and witness against a model --------------------------------------------------------------------------------


class Guarded(RuleBasedStateMachine):
    """Whatever happens to the ledger's file: what is drawn on a data set never exceeds its total.

    And nothing is blocked for nothing: while every witnessed entry is there, what has room is granted. Noise is drawn
    after the witness knows of a charge; a run may die before that.
    """

    TOTAL = Fraction(1)

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.folder = tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)
        home = Path(self.folder.name)
        self.path, self.places = home / "a" / "ledger.sqlite", (home / "a", home / "b")
        for place in self.places:
            place.mkdir()
        self.guard = LedgerGuard(self.path, (home / "b",))
        self.copies: list[bytes | None] = [None]
        self.witnessed: list[str] = []
        self.drawn = {"x": Fraction(0), "y": Fraction(0)}
        self.runs: dict[str, tuple[str, Fraction, bool]] = {}

    def teardown(self) -> None:
        self.folder.cleanup()

    def heads(self) -> list[str]:
        return [entry.hash for entry in Ledger.open(self.path).entries()] if self.path.exists() else []

    datasets = st.sampled_from(["x", "y"])
    amounts = st.sampled_from([Fraction(1, 3), Fraction(1, 2)])

    @rule(ds=datasets, amount=amounts, dies=st.booleans())
    def charge(self, ds: str, amount: Fraction, dies: bool) -> None:
        run_id = f"run {len(self.runs)}"
        self.runs[run_id] = (ds, amount, False)
        self.attempt(run_id, dies)

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(0, 9))
    def continue_a_run(self, number: int) -> None:
        self.attempt(sorted(self.runs)[number % len(self.runs)], dies=False)

    def attempt(self, run_id: str, dies: bool) -> None:
        ds, amount, has_drawn = self.runs[run_id]
        whole = set(self.witnessed) <= set(self.heads())
        spent = Fraction(0)
        known = False
        if self.path.exists():
            ledger = Ledger.open(self.path)
            spent, known = ledger.spent(ds), any(entry.run_id == run_id for entry in ledger.entries())
        try:
            if not self.path.exists():
                self.guard.check(LedgerEntries())
            ledger = Ledger.open(self.path)
            ledger.reserve(
                dataset=ds,
                framework="zcdp",
                total=self.TOTAL,
                run_id=run_id,
                amount=amount,
                plan_digest="p",
                input_digest="i",
                admit=lambda posted: self.guard.admit(posted, dataset=ds, run_id=run_id),
            )
        except BudgetError:
            assert not whole or (not known and spent + amount > self.TOTAL) or (has_drawn and not known)
            return
        assert whole
        if dies:
            return
        self.guard.record(ledger, run_id=run_id, dataset=ds)
        self.witnessed.append(ledger.head)
        if not has_drawn:
            self.drawn[ds] += amount
            self.runs[run_id] = (ds, amount, True)
        assert self.drawn[ds] <= self.TOTAL

    @rule()
    def keep_a_copy(self) -> None:
        self.copies.append(self.path.read_bytes() if self.path.exists() else None)

    @rule(number=st.integers(0, 9))
    def put_a_copy_back(self, number: int) -> None:
        copy = self.copies[number % len(self.copies)]
        self.path.unlink(missing_ok=True)
        if copy is not None:
            self.path.write_bytes(copy)

    @rule(place=st.sampled_from([0, 1]))
    def lose_one_copy_of_the_witness(self, place: int) -> None:
        if all(list(each.glob(PATTERN)) for each in self.places):
            for path in self.places[place].glob(PATTERN):
                path.unlink()
            if self.path.exists() and set(self.witnessed) <= set(self.heads()) and self.heads():
                self.guard.record(Ledger.open(self.path))
                self.witnessed.append(self.heads()[-1])

    @rule()
    def accept_the_loss(self) -> None:
        lacking = not set(self.witnessed) <= set(self.heads())
        ledger = Ledger.open(self.path)
        entries = ledger.decide(lambda posted: self.guard.losses(posted, dataset="x", reason="a fire"))
        assert bool(entries) == lacking
        if entries:
            self.guard.record(ledger)
            self.witnessed = [ledger.head]
            for ds, drawn in self.drawn.items():
                assert ledger.spent(ds) >= drawn, "no spending is forgotten"


TestGuarded = Guarded.TestCase
TestGuarded.settings = settings(max_examples=25, stateful_step_count=20, suppress_health_check=list(HealthCheck))
