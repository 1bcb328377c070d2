"""The ledger of a run's data set, found through the run's folder: shown, verified, changed by a person's decision."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from das.errors import BudgetError, Problem, UsageError
from das.storage.layout import Layout
from das.storage.ledger import Ledger
from das.storage.ledger_entries import Entry, LedgerEntries
from das.storage.ledger_guard import LedgerGuard

__all__ = ["Decision", "ledger_of", "ledger_text", "rows_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person decides about a ledger: one of three things, with a reason that is recorded."""

    raise_to: str | None = None
    accept_loss: bool = False
    distinct_from: str | None = None
    reason: str | None = None

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
        if named and not self.reason:
            raise UsageError(Problem(named[0], "needs a --reason", "say why; it is recorded"))
        return named[0] if named else None


def ledger_of(folder: Path, *, verify: bool, decision: Decision | None = None) -> tuple[Ledger, LedgerGuard]:
    """Open the ledger of a run's data set and its guard; record a decision, and verify, if asked."""
    layout, decision = Layout(folder), decision or Decision()
    option = decision.option
    try:
        origin = json.loads(layout.confidential.origin.read_bytes())
    except FileNotFoundError:
        raise UsageError(Problem(str(folder), "holds no run of das", "name the folder given to --out")) from None
    except PermissionError:
        raise UsageError(Problem(str(layout.confidential.path), "is closed to you", "ask its owner")) from None
    path = Path(origin["ledger"])
    inputs = tuple(map(Path, origin.get("inputs", ())))  # folders begun by version 0.2.0 do not name them
    guard = LedgerGuard(path, inputs, layout.confidential.path.resolve())
    if not path.exists() and not decision.accept_loss:
        guard.check(LedgerEntries())
        if not layout.confidential.key.exists() and not layout.release.measurements.exists():
            none = "nothing was spent by this run yet, so there is no ledger"
            raise UsageError(Problem(str(folder), none, "run it on"))
        raise BudgetError(Problem(str(path), "the ledger is gone", "restore it; a new one would forget what was spent"))
    ledger = Ledger.open(path)
    if option is not None:
        _decide(ledger, guard, decision, origin)
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


def rows_of(ledger: Ledger, guard: LedgerGuard, *, verified: bool) -> dict[str, Any]:
    """Return the ledger as plain data."""
    entries = ledger.entries()
    return {
        "ledger": ledger.path.name,
        "verified": verified,
        "witnesses": _places(ledger, guard),
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
    lines = [f"{'when':<22}{'data set':<14}{'kind':<10}{'amount':>22}  {'run':<12}{'plan':<12} note"]
    for entry in ledger.entries():
        run, plan = (entry.run_id or "")[:10], (entry.plan_digest or "")[:10]
        when, what = entry.time[:19], f"{entry.dataset:<14}{entry.kind:<10}{entry.amount!s:>22}"
        lines.append(f"{when:<22}{what}  {run:<12}{plan:<12} {entry.note}")
    for name in dict.fromkeys(entry.dataset for entry in ledger.entries()):
        spent = ledger.spent(name)
        totals = [e.amount for e in ledger.entries() if e.dataset == name and e.kind in ("open", "raise")]
        of = f" of {totals[-1]}, {totals[-1] - spent} is left" if totals else ""
        lines.append(f"spent on {name}: {spent} = {float(spent):.4f}{of}")
    lines += [f"witness: {place}" for place in _places(ledger, guard)] or ["witness: none yet"]
    if verified:
        lines.append("hash chain: verified")
    return "\n".join(lines)
