"""The ledger of a plan: where it lies, which witnesses guard it, and whether it has room; nothing is written."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from das.errors import BudgetError
from das.plan.plan import Plan
from das.storage.ledger import Ledger
from das.storage.ledger_entries import Entry, LedgerEntries
from das.storage.ledger_guard import LedgerGuard
from das.storage.population import Population

__all__ = ["guard_of", "input_folders", "ledger_path", "refuse_early", "standing"]


def ledger_path(plan: Plan) -> Path:
    """The ledger's file: as configured, or beside the first input."""
    if plan.settings.input.ledger:
        return plan.folder / plan.settings.input.ledger
    return _folder(plan, plan.settings.input.files[0]) / "ledger.sqlite"


def input_folders(plan: Plan) -> list[Path]:
    """The folders of the input files, that of the first one first; links are followed to where the data are."""
    found: list[Path] = []
    for pattern in plan.settings.input.files:
        folder = _folder(plan, pattern)
        try:
            below = (plan.folder / pattern).relative_to(folder)
            matches = sorted(match.resolve() for match in folder.glob(str(below))) if folder.is_dir() else []
        except (ValueError, IndexError, NotImplementedError):  # no pattern at all, such as "." or "a**b"
            matches = []
        found += [match.parent for match in matches] or [folder.resolve()]
    return list(dict.fromkeys(found))


def guard_of(plan: Plan, run: Path | None = None) -> LedgerGuard:
    """The guard of the plan's ledger; `run` is the confidential folder of a run, if there is one."""
    return LedgerGuard(ledger_path(plan).resolve(), tuple(input_folders(plan)), run.resolve() if run else None)


def refuse_early(
    plan: Plan, *, run_id: str = "new", run: Path | None = None, population: Population | None = None
) -> str:
    """Say what the ledger has for this plan, and refuse what it would refuse later, before any record is read.

    Raises
    ------
    BudgetError
        The ledger is damaged, is contradicted by a witness, has no room for this plan, or knows the people under
        another name.
    """
    path, dataset = ledger_path(plan).resolve(), plan.settings.input.dataset
    posted = _guarded(plan, run_id, run, population)
    if posted is None:
        return f"none yet; the first release begins it ({path.name})"
    ledger = Ledger(path)
    if run_id not in posted.runs:
        _require_room(ledger, plan, run_id)
    return f"{dataset}: {ledger.spent(dataset)} is spent, this plan needs {plan.budget}"


def standing(plan: Plan, *, population: Population | None = None) -> str:
    """Say what the ledger has for this plan, where nobody knows in which folder it runs.

    A plan that was charged before may be continued or looked at in its own folder, whether or not there is room for
    another release of it.

    Raises
    ------
    BudgetError
        As for `refuse_early`.
    """
    try:
        return refuse_early(plan, population=population)
    except BudgetError:
        posted = _guarded(plan, "new", None, population)
        charged = [entry for entry in posted.runs.values() if _is_charge(entry, plan)] if posted else []
        if not charged:
            raise
    dataset, when = plan.settings.input.dataset, charged[-1].time[:10]
    spent = Ledger(ledger_path(plan).resolve()).spent(dataset)
    return (
        f"{dataset}: {spent} is spent; this plan was charged on {when}, and its folder needs no more; "
        "another release of it has no room"
    )


def _guarded(plan: Plan, run_id: str, run: Path | None, population: Population | None) -> LedgerEntries | None:
    """Entries of the ledger, which its witnesses do not contradict; None where there is no ledger."""
    guard, path, dataset = guard_of(plan, run), ledger_path(plan).resolve(), plan.settings.input.dataset
    if not path.exists() or not path.stat().st_size:
        guard.refuse(LedgerEntries(), dataset=dataset, run_id=run_id, population=population)
        return None
    with Ledger(path).locked() as posted:
        guard.refuse(posted, dataset=dataset, run_id=run_id, population=population)
        return posted


def _require_room(ledger: Ledger, plan: Plan, run_id: str) -> None:
    ledger.try_reserve(
        dataset=plan.settings.input.dataset,
        framework=plan.currency,
        total=plan.dataset_budget,
        run_id=run_id,
        amount=plan.budget,
    )


def _is_charge(entry: Entry, plan: Plan) -> bool:
    """Whether a run's last entry says that this plan was charged and not given back."""
    return entry.kind in ("reserve", "commit") and entry.plan_digest == plan.digest


def _folder(plan: Plan, pattern: str) -> Path:
    """The part of a pattern's path that has no wildcard."""
    parts = takewhile(lambda name: not set(name) & set("*?["), Path(pattern).parent.parts)
    return plan.folder.joinpath(*parts)
