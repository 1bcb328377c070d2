"""A single release and the ledger: charged before noise, once, never undercounted, and refused before work is done."""

from __future__ import annotations

import stat
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from das.errors import BudgetError, ConfigError, InputError, UsageError
from das.inference.confidential.density import density
from das.inference.confidential.parts import PartOptions
from das.inference.confidential.row_statistics import BUILT_IN
from das.inference.confidential.sample_aggregate import sample_aggregate
from das.inference.confidential.udp import udp
from das.storage.ledger import Ledger
from das.storage.single_release import Budget, Charge, single_release

BUDGET = Budget("zcdp", "1/4")
ROWS = np.random.default_rng(1).normal(3, 1, 400)


@pytest.fixture
def charge(tmp_path: Path) -> Charge:
    data = tmp_path / "data" / "people.csv"
    data.parent.mkdir()
    data.write_text("x\n1\n2\n")
    return Charge(ledger=tmp_path / "ledger.sqlite", dataset="people", total=Fraction(1, 2), files=(data,))


def kinds(charge: Charge) -> list[str]:
    assert charge.ledger is not None
    return [entry.kind for entry in Ledger(charge.ledger).entries()] if charge.ledger.exists() else []


def release_udp(charge: Charge, budget: Budget = BUDGET, rows: np.ndarray = ROWS, bounds=(0, 10), **more):
    return udp(rows, BUILT_IN["mean"], bounds, 50, 0, budget, charge=charge, **{"simulations": 50, **more})


def test_each_release_is_reserved_and_committed_and_the_last_one_is_refused(charge: Charge) -> None:
    first, second = release_udp(charge), release_udp(charge)
    assert kinds(charge) == ["open", "reserve", "commit", "reserve", "commit"]
    assert charge.ledger is not None
    assert Ledger(charge.ledger).spent("people") == Fraction(1, 2)
    assert first.uncorrected != second.uncorrected  # a key of its own
    assert first.privacy["run_id"] != second.privacy["run_id"]
    with pytest.raises(BudgetError, match="1/2 is already spent"):
        release_udp(charge)
    assert len(kinds(charge)) == 5


def test_a_witness_lies_beside_the_data_and_the_ledger(charge: Charge) -> None:
    release_udp(charge)
    for folder in (charge.files[0].parent, charge.files[0].parent.parent):
        (witness,) = folder.glob(".das-witness-*.jsonl")
        assert stat.S_IMODE(witness.stat().st_mode) == 0o600


def test_a_ledger_that_was_deleted_grants_nothing(charge: Charge) -> None:
    release_udp(charge)
    assert charge.ledger is not None
    charge.ledger.unlink()
    with pytest.raises(BudgetError, match="the ledger is gone"):
        release_udp(charge)


def test_the_same_file_under_another_name_is_refused_before_anything_is_written(charge: Charge, tmp_path: Path) -> None:
    release_udp(charge)
    other = Charge(ledger=tmp_path / "second.sqlite", dataset="others", files=charge.files)
    with pytest.raises(BudgetError, match="a second name would be a second budget"):
        release_udp(other)
    assert not (tmp_path / "second.sqlite").exists()


def test_a_release_that_dies_after_its_noise_stays_charged(charge: Charge) -> None:
    def killed() -> None:
        with single_release(charge, BUDGET, {}, "note") as release:
            release.draw(BUDGET.noise(Fraction(1), l1=1, l2_squared=1), "estimate")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed()
    assert kinds(charge) == ["open", "reserve"]
    assert charge.ledger is not None
    assert Ledger(charge.ledger).spent("people") == BUDGET.amount


def test_a_release_that_fails_before_its_noise_charges_nothing(charge: Charge) -> None:
    def fails(rows: np.ndarray) -> float:
        raise ZeroDivisionError("a row of 3.14159")

    options = PartOptions(parts=50)
    with pytest.raises(InputError, match=r"failed on every part \(ZeroDivisionError\); nothing was spent") as error:
        sample_aggregate(ROWS, fails, (0, 1), BUDGET, options=options, charge=charge)
    assert "3.14159" not in str(error.value)
    assert kinds(charge) == []


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda c: release_udp(c, rows=np.array([1.0, np.nan])), InputError, "data, row 2: a value is missing"),
        (lambda c: release_udp(c, rows=ROWS[:20]), InputError, r"more of them \(50\) than rows"),
        (lambda c: release_udp(c, Budget("zcdp", "1/1000000")), ConfigError, "budget: is too small"),
        (lambda c: release_udp(c, Budget("zcdp", 1)), BudgetError, "needs more"),
        (lambda c: release_udp(c, share=Fraction(0)), ConfigError, "share"),
        (lambda c: release_udp(c, confidence=1.0), ConfigError, "confidence"),
        (lambda c: release_udp(c, simulations=1), ConfigError, "simulations"),
        (lambda c: release_udp(c, bounds=(10, 0)), ConfigError, "not below the upper bound"),
        (lambda c: release_udp(c, bounds=[(0, 1), (0, 1)]), ConfigError, "of several numbers"),
        (lambda c: release_udp(c, bounds=(0, float("inf"))), ConfigError, "not a finite number"),
        (lambda c: release_udp(c, grid_bits=60), ConfigError, "grid_bits"),
        (lambda c: udp(ROWS, BUILT_IN["ols"], (0, 10), 50, 0, BUDGET, charge=c), UsageError, "at least 2 columns"),
        (lambda c: release_udp(c, Budget("zcdp", "1/4", "add-remove")), ConfigError, "number of rows is confidential"),
        (lambda c: density(ROWS, (0, 10), Budget("zcdp", "1/4", "add-remove"), charge=c), ConfigError, "confidential"),
        (lambda c: density(ROWS, (0, 10), BUDGET, charge=c, bins=0), ConfigError, "not a number of bins"),
        (lambda c: density(ROWS, (0, 10), BUDGET, charge=c, bins=400), ConfigError, "budget: is too small"),
        (lambda c: density(np.ones((5, 2)), (0, 10), BUDGET, charge=c), ConfigError, "several columns"),
    ],
)  # fmt: skip
def test_bad_input_is_named_and_spends_nothing(charge: Charge, make, error, match: str) -> None:
    with pytest.raises(error, match=match):
        make(charge)
    assert kinds(charge) == []


def test_noise_is_drawn_once_for_each_answer() -> None:
    noise = BUDGET.noise(Fraction(1), l1=1, l2_squared=1)
    with single_release(Charge(testing_key="k", data="generated"), BUDGET, {}, "") as release:
        release.draw(noise, "estimate")
        with pytest.raises(UsageError, match="drawn before"):
            release.draw(noise, "estimate")


def test_the_parts_of_a_budget_must_be_all_of_it() -> None:
    with (
        single_release(Charge(testing_key="k", data="generated"), BUDGET, {}, "") as release,
        pytest.raises(UsageError, match="not the amount"),
    ):
        release.privacy({"estimate": Fraction(1, 8)})


def test_a_testing_key_is_marked_listed_and_charges_nothing(tmp_path: Path) -> None:
    test = Charge(ledger=tmp_path / "ledger.sqlite", dataset="people", testing_key="k", data="generated")
    one, two = release_udp(test), release_udp(test)
    assert one == two
    assert one.privacy["testing"] is True
    assert "testing key" in one.privacy["status"]
    assert kinds(test) == ["testing"]
    assert Ledger(tmp_path / "ledger.sqlite").spent("people") == 0


def test_a_testing_key_for_confidential_data_needs_a_word() -> None:
    with pytest.raises(UsageError, match="whoever guesses the key"):
        Charge(testing_key="k")
    assert Charge(testing_key="k", unprotected=True).is_testing
    with pytest.raises(UsageError, match="'harmless' is not known"):
        Charge(testing_key="k", data="harmless")
    with pytest.raises(UsageError, match="about testing keys"):
        Charge(ledger=Path("l"), dataset="d", unprotected=True)


def test_a_ledger_in_no_folder_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it can hold no ledger"):
        release_udp(Charge(ledger=tmp_path / "no" / "ledger.sqlite", dataset="people"))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("gdp", 1), "framework"),
        (("pure", 0.5), "float"),
        (("pure", "-1"), "not positive"),
        (("zcdp", 1, "bounded"), "neighbours"),
    ],
)
def test_a_budget_is_exact(arguments: tuple, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Budget(*arguments)


def test_a_pure_release_is_not_added_to_rho(charge: Charge) -> None:
    release_udp(charge)
    with pytest.raises(BudgetError, match="cannot be added"):
        release_udp(charge, Budget("pure", "1/4"))
