"""One release from confidential data: its budget, its charge in the ledger, its key, and noise that is drawn once.

The order of the steps is what protects, as in `das.storage.run_identity`: the ledger is charged and its witnesses know
it before any noise is drawn, and the charge is committed when all of it is. The key is in locked memory and in no file,
so a release that is killed cannot be continued: what it was charged stays charged, and the same command is a new one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.accounting.conversion import epsilon_upper
from das.errors import BudgetError, ConfigError, Problem, UsageError
from das.exact import digest_of, round_up
from das.noise.mechanisms import FRAMEWORKS, Mechanism
from das.noise.rational import Rational, positive_rational
from das.noise.stream import RunKey, Streams
from das.schema.query import Neighbours
from das.storage.files import sha256_file
from das.storage.ledger import Ledger
from das.storage.ledger_entries import LedgerEntries
from das.storage.ledger_guard import LedgerGuard
from das.storage.population import Population, population_of
from das.storage.testing_key import UNPROTECTED

__all__ = ["NOT_RECORDED", "Budget", "Charge", "SingleRelease", "single_release"]

DATA = ("confidential", "public", "generated")
DELTA = Fraction(1, 10**10)
NOT_RECORDED = "not recorded: a release without a folder is never continued"
"""The input digest of such a release in the ledger, by which it is told from a run."""


@dataclass(frozen=True, slots=True, init=False)
class Budget:
    """What one release spends: rho of zero-concentrated, or epsilon of pure differential privacy, and about whom.

    Parameters
    ----------
    framework : str
        ``"zcdp"`` or ``"pure"``.
    amount : int, str or Fraction
        Rho or epsilon; floats are refused.
    neighbours : Neighbours
        ``"replace"``: one row is replaced by another, and the number of rows is public. ``"add-remove"``: one row is
        there or not.

    Examples
    --------
    >>> Budget("zcdp", "1/10").share(Fraction(1, 4)), Budget("pure", 1, "add-remove").currency
    (Fraction(1, 40), 'pure, add-remove')
    >>> Budget("zcdp", 0)
    Traceback (most recent call last):
    das.errors.ConfigError: budget: 0 is not positive; noise needs a parameter above zero
    """

    framework: str
    amount: Fraction
    neighbours: Neighbours

    def __init__(self, framework: str, amount: Rational, neighbours: str = Neighbours.REPLACE) -> None:
        if framework not in FRAMEWORKS:
            known = ", ".join(FRAMEWORKS)
            raise ConfigError(Problem("framework", f"{framework!r} is not known", f"write one of {known}"))
        if neighbours not in tuple(Neighbours):
            known = ", ".join(Neighbours)
            raise ConfigError(Problem("neighbours", f"{neighbours!r} is not known", f"write one of {known}"))
        object.__setattr__(self, "framework", framework)
        object.__setattr__(self, "amount", positive_rational(amount, "budget"))
        object.__setattr__(self, "neighbours", Neighbours(neighbours))

    @property
    def currency(self) -> str:
        """What the ledger counts."""
        return self.framework if self.neighbours is Neighbours.REPLACE else f"{self.framework}, {self.neighbours}"

    def share(self, part: Fraction) -> Fraction:
        """A part of the amount."""
        return self.amount * part

    def noise(self, part: Fraction, *, l1: int, l2_squared: int) -> Mechanism:
        """Return the noise that spends a part on answers of this sensitivity."""
        return FRAMEWORKS[self.framework].spending(self.share(part), l1=l1, l2_squared=l2_squared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Where a release is charged: the ledger and the data set's name in it, or a testing key, with which it is none.

    Parameters
    ----------
    ledger : Path, optional
        The ledger's file; it is begun if it does not exist.
    dataset : str
        The name of the data set in the ledger.
    total : Fraction, optional
        All that may ever be spent on the data set; the first charge fixes it. Without it the standing total applies.
    files : tuple of Path
        The files that hold the data: the same file under another name is refused, and a witness lies beside them.
    testing_key : str, optional
        A text from which reproducible noise is drawn. It protects nothing and is charged nothing.
    data : str
        ``"confidential"``, or ``"public"`` or ``"generated"``: only the latter two go with a testing key.
    unprotected : bool
        Allow a testing key for confidential data; what is printed is then as confidential as the data.

    Examples
    --------
    >>> Charge()
    Traceback (most recent call last):
    das.errors.UsageError: ledger: a release from confidential data must be charged; name the ledger's file and the data
    set
    """

    ledger: Path | None = None
    dataset: str = ""
    total: Fraction | None = None
    files: tuple[Path, ...] = ()
    testing_key: str | None = None
    data: str = "confidential"
    unprotected: bool = False

    def __post_init__(self) -> None:
        if self.data not in DATA:
            raise UsageError(Problem("data", f"{self.data!r} is not known", f"write one of {', '.join(DATA)}"))
        if self.testing_key is None:
            if self.unprotected:
                raise UsageError(Problem("unprotected", "is about testing keys", "leave it out"))
            if self.ledger is None or not self.dataset:
                reason = "a release from confidential data must be charged"
                raise UsageError(Problem("ledger", reason, "name the ledger's file and the data set"))
        elif self.data == "confidential" and not self.unprotected:
            reason = "the data are not declared public or generated, and whoever guesses the key can remove the noise"
            remedy = "declare the data, or leave the key out, or say unprotected and keep what is printed confidential"
            raise UsageError(Problem("testing key", reason, remedy))

    @property
    def is_testing(self) -> bool:
        """Whether the noise comes from a testing key."""
        return self.testing_key is not None


@dataclass(slots=True, repr=False)
class SingleRelease:
    """A release in progress: `draw` charges the ledger before the first noise, and gives each noise once."""

    charge: Charge
    budget: Budget
    digest: str
    note: str
    run_id: str
    streams: Streams
    people: Population
    is_charged: bool = False
    drawn: dict[str, Mechanism] = field(default_factory=dict)

    def seed(self, purpose: str) -> int:
        """Return 128 bits for what is random and no noise: a partition, bootstrap weights, a simulation."""
        return self.streams.bits(("inference", "", purpose, "seed")).take(128)

    def draw(self, noise: Mechanism, purpose: str, n: int = 1) -> NDArray[np.int64]:
        """Return n exact draws; a purpose is drawn for once, because equal noise on two answers reveals both."""
        if purpose in self.drawn:
            raise UsageError(Problem(purpose, "its noise was drawn before", "draw the noise of an answer once"))
        self.reserve()
        self.drawn[purpose] = noise
        name = ("inference", "", purpose, noise.name)
        return noise.draw(self.streams.bundle([name]), n).reshape(n)

    def reserve(self) -> None:
        """Charge the ledger, once: before the first noise, also of a mechanism that draws from the streams itself."""
        if not self.is_charged:
            self._reserve()
            self.is_charged = True

    def privacy(self, spent: dict[str, Fraction]) -> dict[str, Any]:
        """Return what the result says of its promise; the parts must be the whole amount."""
        if sum(spent.values()) != self.budget.amount:
            raise UsageError(Problem("budget", "the parts that were spent are not the amount that was charged"))
        parameter = "rho" if self.budget.framework == "zcdp" else "epsilon"
        found: dict[str, Any] = {
            "framework": self.budget.framework,
            "neighbours": str(self.budget.neighbours),
            parameter: str(self.budget.amount),
            "spent": {name: str(amount) for name, amount in spent.items()},
            "noise": {name: noise.name for name, noise in self.drawn.items()},
            "status": "proved",
        }
        if self.budget.framework == "zcdp":
            found["epsilon_upper"] = float(round_up(epsilon_upper(self.budget.amount, DELTA), 4))
            found["delta"] = str(DELTA)
        if self.charge.is_testing:
            found["status"] = "a test: the noise can be removed by whoever guesses the testing key"
            found["testing"] = True
        return found | {"dataset": self.charge.dataset, "run_id": self.run_id}

    def _reserve(self) -> None:
        charge = self.charge
        if charge.ledger is None:
            return
        ledger, dataset = Ledger.open(charge.ledger), charge.dataset
        common = {"plan_digest": self.digest, "input_digest": NOT_RECORDED}
        if charge.is_testing:
            note = f"{self.note}, {UNPROTECTED}" if charge.unprotected else self.note
            framework = self.budget.currency
            ledger.record_testing(dataset=dataset, framework=framework, run_id=self.run_id, note=note, **common)
            return
        guard, people = _guard(charge), self.people
        ledger.reserve(
            dataset=dataset,
            framework=self.budget.currency,
            total=charge.total,
            run_id=self.run_id,
            amount=self.budget.amount,
            note=self.note,
            admit=lambda posted: guard.admit(posted, dataset=dataset, run_id=self.run_id, population=people),
            **common,
        )
        guard.record(ledger, run_id=self.run_id, dataset=dataset, population=people)  # noise is drawn after this

    def _commit(self) -> None:
        if self.is_charged and self.charge.ledger is not None and not self.charge.is_testing:
            ledger, guard = Ledger(self.charge.ledger.resolve()), _guard(self.charge)
            ledger.commit(self.run_id, admit=guard.check)
            guard.record(ledger)


@contextmanager
def single_release(charge: Charge, budget: Budget, content: dict[str, Any], note: str) -> Iterator[SingleRelease]:
    """Begin a release, and commit its charge when the block ends well.

    The ledger is asked first, so that nothing is computed that it would refuse. If the block fails before the first
    noise, nothing is charged; if it fails later, the charge stands.

    Parameters
    ----------
    charge : Charge
    budget : Budget
    content : dict
        Everything public that describes the release; noise and charge are bound to its digest.
    note : str
        What the ledger says of it.

    Examples
    --------
    >>> test = Charge(testing_key="doc", data="generated")
    >>> budget = Budget("pure", 1)
    >>> with single_release(test, budget, {"statistic": "mean"}, "an example") as release:
    ...     noise = budget.noise(Fraction(1), l1=1, l2_squared=1)
    ...     drawn = release.draw(noise, "estimate")
    >>> release.privacy({"estimate": Fraction(1)})["noise"]
    {'estimate': 'discrete-laplace(scale=1)'}
    """
    people = population_of({"name": path.name, "sha256": sha256_file(path)} for path in charge.files)
    digest = digest_of(content | {"budget": str(budget.amount), "currency": budget.currency})
    if charge.testing_key is None:
        key, run_id = RunKey.generate(), secrets.token_hex(16)
        _refuse_early(charge, budget, run_id, people)
    else:
        key = RunKey.for_testing(charge.testing_key)
        run_id = digest_of({"digest": digest, "testing key": charge.testing_key})[:32]
    release = SingleRelease(charge, budget, digest, note, run_id, key.streams(bytes.fromhex(digest)), people)
    try:
        yield release
        release._commit()
    finally:
        release.streams.wipe()
        key.memory.wipe()


def _guard(charge: Charge) -> LedgerGuard:
    folders = dict.fromkeys(path.resolve().parent for path in charge.files)
    return LedgerGuard((charge.ledger or Path()).resolve(), tuple(folders))


def _refuse_early(charge: Charge, budget: Budget, run_id: str, people: Population) -> None:
    """Refuse what the ledger would refuse later; nothing is written."""
    path, guard = (charge.ledger or Path()).resolve(), _guard(charge)
    if not path.parent.is_dir():
        raise UsageError(Problem(str(path.parent), "is no folder, so it can hold no ledger", "make it first"))
    if not path.exists() or not path.stat().st_size:
        guard.refuse(LedgerEntries(), dataset=charge.dataset, run_id=run_id, population=people)
        if charge.total is not None and charge.total < budget.amount:
            reason = f"the total of data set {charge.dataset!r} is {charge.total}, and this release needs more"
            raise BudgetError(Problem(str(path), reason, f"lower the budget of {budget.amount}, or raise the total"))
        return
    ledger = Ledger(path)
    with ledger.locked() as posted:
        guard.refuse(posted, dataset=charge.dataset, run_id=run_id, population=people)
    ledger.try_reserve(
        dataset=charge.dataset, framework=budget.currency, total=charge.total, run_id=run_id, amount=budget.amount
    )
