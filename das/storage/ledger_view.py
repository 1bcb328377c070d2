"""The ledger of a data set, found through a run's folder or by itself: shown, verified, changed by a decision."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from das.errors import BudgetError, Problem, ProblemsFound, UsageError
from das.storage.layout import Layout
from das.storage.ledger import Ledger
from das.storage.ledger_entries import Entry, LedgerEntries
from das.storage.ledger_guard import LedgerGuard
from das.storage.single_release import NOT_RECORDED
from das.storage.witness import Witness, read_witnesses

__all__ = ["Decision", "charges_beside", "ledger_of", "ledger_text", "rows_of"]

UNITS = {"pure": "epsilon", "zcdp": "rho"}
"""What a framework's budget is counted in."""
NOMINAL = "amounts are nominal: what a release charges, as if nothing were public"
JOINT = "effective numbers of all releases together: das account FOLDER, a folder that holds their run folders"

APART = (
    "releases of one table, of synthetic records or of an estimate are in the sum at what they were charged (a table: "
    "its promise under semi), and in no joint account: their promises are about one record given their own public "
    "facts, or about one row, and no theorem joins them to moves that keep a plan's places and invariants"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person decides about a ledger: one of three things, with a reason that is recorded."""

    raise_to: str | None = None
    accept_loss: bool = False
    distinct_from: str | None = None
    reason: str | None = None
    dataset: str | None = None

    @property
    def option(self) -> str | None:
        """The option that was given, as it is typed."""
        given = {
            "--raise-to": self.raise_to is not None,
            "--accept-loss": self.accept_loss,
            "--distinct-from": self.distinct_from is not None,
        }
        named = [option for option, is_given in given.items() if is_given]
        if len(named) > 1:
            raise UsageError(Problem(" ".join(named), "are two decisions", "record one at a time"))
        if self.reason is not None and not named:
            raise UsageError(Problem("--reason", "means nothing by itself", f"use it with {', '.join(given)}"))
        if self.dataset is not None and not named:
            raise UsageError(Problem("--dataset", "means nothing by itself", f"use it with {', '.join(given)}"))
        if named and not self.reason:
            raise UsageError(Problem(named[0], "needs a --reason", "say why; it is recorded"))
        return named[0] if named else None


def ledger_of(folder: Path, *, verify: bool, decision: Decision | None = None) -> tuple[Ledger, LedgerGuard]:
    """Open the ledger of a data set and its guard; record a decision, and verify, if asked.

    `folder` is that of a run, or the ledger's file or folder: `das table`, `das synth` and estimates from rows leave no
    run's folder, and what they publish does not say where the ledger lies.
    """
    layout, decision = Layout(folder), decision or Decision()
    option = decision.option
    origin, guard = _origin_of(folder)
    path = guard.ledger
    if not path.exists() and not decision.accept_loss:
        guard.check(LedgerEntries())
        if not layout.confidential.key.exists() and not layout.release.measurements.exists():
            none = "nothing was spent by this run yet, so there is no ledger"
            raise UsageError(Problem(str(folder), none, "run it on"))
        raise BudgetError(Problem(str(path), "the ledger is gone", "restore it; a new one would forget what was spent"))
    ledger = Ledger.open(path)
    if option is not None:
        _decide(ledger, guard, decision, origin | _dataset_of(ledger, decision, origin))
        guard.record(ledger)
    if verify:
        problems = ledger.verify()
        problems += _missing_entry(layout, ledger)
        if not problems:
            with ledger.locked() as posted:
                guard.check(posted)
        if problems:
            raise BudgetError(problems)
    return ledger, guard


def _origin_of(folder: Path) -> tuple[dict[str, Any], LedgerGuard]:
    """Return what a run's folder says of its data set, and the guard of its ledger; of a ledger by itself the guard."""
    layout = Layout(folder)
    try:
        origin = json.loads(layout.confidential.origin.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        if (alone := _ledger_at(folder)) is not None:
            return {}, LedgerGuard(alone.resolve(), (folder.resolve(),) if folder.is_dir() else ())
        remedy = "name the folder given to `das run --out`, or the ledger's file, which lies beside the data"
        raise UsageError(Problem(str(folder), "holds no run of das and no ledger", remedy)) from None
    except PermissionError:
        raise UsageError(Problem(str(layout.confidential.path), "is closed to you", "ask its owner")) from None
    inputs = tuple(map(Path, origin.get("inputs", ())))  # folders begun by version 0.2.0 do not name them
    return origin, LedgerGuard(Path(origin["ledger"]), inputs, layout.confidential.path.resolve())


def _ledger_at(place: Path) -> Path | None:
    """Return the ledger's file: the place itself, in it, or, if it is gone, where the witness in this place says."""
    for path in (place, place / "ledger.sqlite"):
        if path.is_file():
            return path
    named = {Path(found.ledger) for _, found in read_witnesses(place) if isinstance(found, Witness)}
    return named.pop() if len(named) == 1 else None


def _dataset_of(ledger: Ledger, decision: Decision, origin: dict[str, Any]) -> dict[str, Any]:
    """Return the data set that a decision is about, as named, as the run's folder says, or the ledger's only one."""
    frameworks = {entry.dataset: entry.framework for entry in ledger.entries()}
    named = decision.dataset or origin.get("dataset") or (next(iter(frameworks)) if len(frameworks) == 1 else None)
    if decision.accept_loss:
        named = named or ""  # whatever the witnesses name is charged again
    elif named is None or (named not in frameworks and decision.distinct_from is None and not origin):
        reason = "is about no data set of this ledger" if named else "needs the name of a data set"
        known = ", ".join(frameworks) or "none"
        raise UsageError(Problem(str(decision.option), reason, f"write --dataset NAME; the ledger has {known}"))
    kept = origin.get("framework") or next(iter(frameworks.values()), "zcdp")
    return {"dataset": named, "framework": frameworks.get(named, kept)}


def _decide(ledger: Ledger, guard: LedgerGuard, decision: Decision, origin: dict[str, Any]) -> None:
    """Add the entries of a decision."""
    dataset, reason = origin["dataset"], decision.reason or ""
    if decision.raise_to is not None:
        try:
            total = Fraction(decision.raise_to)
        except (ValueError, ZeroDivisionError):
            where = f"--raise-to {decision.raise_to}"
            raise UsageError(Problem(where, "is not a fraction", "write for example 7/2")) from None
        ledger.raise_total(dataset, total, reason)
    elif decision.accept_loss:
        if not ledger.decide(lambda posted: guard.losses(posted, dataset=dataset, reason=reason)):
            nothing = "nothing is lost: the ledger holds every entry that its witnesses name"
            raise UsageError(Problem("--accept-loss", nothing, "leave it out"))
    else:
        other = str(decision.distinct_from)
        if not re.fullmatch(".+@[0-9a-f]{8}", other):
            remedy = "write it as the refusal named it, such as data@1a2b3c4d"
            raise UsageError(Problem(f"--distinct-from {other}", "names no data set", remedy))
        entry = Entry(
            dataset=dataset,
            framework=origin["framework"],
            kind="distinct",
            amount=Fraction(0),
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            plan_digest=other,
            note=reason,
        )
        ledger.decide(lambda posted: [entry])


def _missing_entry(layout: Layout, ledger: Ledger) -> list[Problem]:
    """Detect a truncated ledger: its chain is sound, but the entry that the manifest names is missing."""
    if not layout.release.manifest.exists():
        return []
    mine = json.loads(layout.release.manifest.read_bytes())["ledger_entry"].get("hash")
    if mine is None or any(entry.hash == mine for entry in ledger.entries()):
        return []
    remedy = "restore the ledger from a copy; this one lacks spending"
    return [Problem(str(ledger.path), "no longer holds the entry that this release's manifest names", remedy)]


def charges_beside(folders: Iterable[Path], dataset: str, runs: Collection[str]) -> list[dict[str, Any]]:
    """Say what was charged on a data set in all, by the ledgers of some runs, and how much of it by other runs.

    Where a ledger cannot be read, `reason` says why, and there is no number: what is not known is not zero.
    """
    rows: dict[str, dict[str, Any]] = {}
    for folder in folders:
        try:
            ledger, _ = ledger_of(folder, verify=False)
            rows[str(ledger.path)] = _charges(ledger, dataset, runs)
        except ProblemsFound as error:
            reasons = "; ".join(problem.reason for problem in error.problems)
            rows[f"{folder}: {reasons}"] = {"ledger": f"that of {folder.name}", "dataset": dataset, "reason": reasons}
    return list(rows.values())


def _charges(ledger: Ledger, dataset: str, runs: Collection[str]) -> dict[str, Any]:
    posted = LedgerEntries()
    for entry in ledger.entries(dataset):
        posted.post(entry)
    standing = [entry for entry in posted.runs.values() if entry.kind in ("reserve", "commit")]
    spent, account = posted.spent.get(dataset, Fraction(0)), posted.accounts.get(dataset)
    here = sum((entry.amount for entry in standing if entry.run_id in runs), Fraction(0))
    apart = _apart(ledger, [entry.run_id for entry in standing if entry.run_id not in runs], dataset)
    return {
        "ledger": ledger.path.name,
        "dataset": dataset,
        "framework": account.framework if account else "",
        "total": str(account.amount) if account else None,
        "charged": str(spent),
        "charged_here": str(here),
        "charged_elsewhere": str(spent - here),
        "runs": len(standing),
        "runs_elsewhere": sum(entry.run_id not in runs for entry in standing),
        "apart": [{"release": entry.note, "charged": str(entry.amount)} for entry in apart],
        "apart_reason": APART if apart else None,
    }


def _apart(ledger: Ledger, runs: Collection[str], dataset: str | None = None) -> list[Entry]:
    """Return the charges, among some, of releases that are no runs: `das table`, `das synth`, estimates from rows."""
    reserved = [entry for entry in ledger.entries(dataset) if entry.kind == "reserve" and entry.run_id in runs]
    return [entry for entry in reserved if entry.input_digest == NOT_RECORDED]


def rows_of(ledger: Ledger, guard: LedgerGuard, *, verified: bool) -> dict[str, Any]:
    """Return the ledger as plain data."""
    entries = ledger.entries()
    return {
        "ledger": ledger.path.name,
        "verified": verified,
        "witnesses": _places(ledger, guard),
        "amounts": NOMINAL,
        "joint": JOINT,
        "apart": APART,
        "datasets": {
            name: {"spent": str(ledger.spent(name))} for name in dict.fromkeys(entry.dataset for entry in entries)
        },
        "entries": [entry.to_row() for entry in entries],
    }


def _places(ledger: Ledger, guard: LedgerGuard) -> list[str]:
    with ledger.locked() as posted:
        return guard.places(posted)


def ledger_text(ledger: Ledger, guard: LedgerGuard, *, verified: bool) -> str:
    """Return the ledger as a table for the terminal."""
    lines = [f"{'when':<22}{'data set':<14}{'kind':<10}{'amount':>26}  {'run':<12}{'plan':<12} note"]
    for entry in ledger.entries():
        run, plan = (entry.run_id or "")[:10], (entry.plan_digest or "")[:10]
        amount = f"{UNITS.get(entry.framework, entry.framework)} {entry.amount}" if entry.amount else ""
        when, what = entry.time[:19], f"{entry.dataset:<14}{entry.kind:<10}{amount:>26}"
        lines.append(f"{when:<22}{what}  {run:<12}{plan:<12} {entry.note}")
    for name in dict.fromkeys(entry.dataset for entry in ledger.entries()):
        spent = ledger.spent(name)
        totals = [e.amount for e in ledger.entries() if e.dataset == name and e.kind in ("open", "raise")]
        of = f" of {totals[-1]}; {totals[-1] - spent} is left" if totals else ""
        unit = next(UNITS.get(e.framework, e.framework) for e in ledger.entries() if e.dataset == name)
        about = "" if spent.denominator == 1 else f" (about {float(spent):.4f})"
        lines.append(f"spent on {name}: {unit} {spent}{about}{of}")
    lines.append(NOMINAL)
    lines += [f"witness: {place}" for place in _places(ledger, guard)] or ["witness: none yet"]
    committed = [entry.run_id for entry in ledger.entries() if entry.kind == "commit"]
    apart = _apart(ledger, committed)
    if len(committed) > len(apart):
        lines.append(JOINT)
    if apart:
        lines.append(APART)
    if verified:
        lines.append("hash chain: verified")
    return "\n".join(lines)
