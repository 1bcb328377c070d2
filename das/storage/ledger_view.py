"""The ledger of a run's data set as a table or as plain data, found through the folder of the run."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from das.errors import BudgetError, Problem, UsageError
from das.storage.layout import Layout
from das.storage.ledger import Ledger

__all__ = ["ledger_of", "ledger_text", "rows_of"]


def ledger_of(folder: Path, *, verify: bool, raise_to: str | None = None, reason: str | None = None) -> Ledger:
    """Open the ledger of a run's data set; check it, or raise its total, if asked."""
    layout = Layout(folder)
    try:
        origin = json.loads(layout.confidential.origin.read_bytes())
    except FileNotFoundError:
        raise UsageError(Problem(str(folder), "holds no run of das", "name the folder given to --out")) from None
    except PermissionError:
        raise UsageError(Problem(str(layout.confidential.path), "is closed to you", "ask its owner")) from None
    path = Path(origin["ledger"])
    if not path.exists() and not layout.confidential.key.exists() and not layout.release.measurements.exists():
        raise UsageError(Problem(str(folder), "nothing was spent by this run yet, so there is no ledger", "run it on"))
    if not path.exists():
        raise BudgetError(Problem(str(path), "the ledger is gone", "restore it; a new one would forget what was spent"))
    ledger = Ledger.open(path)
    if raise_to is not None:
        if not reason:
            raise UsageError(Problem("--raise-to", "needs a --reason", "say why; it is recorded"))
        try:
            total = Fraction(raise_to)
        except (ValueError, ZeroDivisionError):
            raise UsageError(Problem(f"--raise-to {raise_to}", "is not a fraction", "write for example 7/2")) from None
        ledger.raise_total(origin["dataset"], total, reason)
    if verify:
        problems = ledger.verify()
        problems += _missing_entry(layout, ledger)
        if problems:
            raise BudgetError(problems)
    return ledger


def _missing_entry(layout: Layout, ledger: Ledger) -> list[Problem]:
    """Detect a truncated ledger: its chain is sound, but the entry that the manifest names is missing."""
    if not layout.release.manifest.exists():
        return []
    mine = json.loads(layout.release.manifest.read_bytes())["ledger_entry"].get("hash")
    if mine is None or any(entry.hash == mine for entry in ledger.entries()):
        return []
    remedy = "restore the ledger from a copy; this one lacks spending"
    return [Problem(str(ledger.path), "no longer holds the entry that this release's manifest names", remedy)]


def rows_of(ledger: Ledger, *, verified: bool) -> dict[str, Any]:
    """Return the ledger as plain data."""
    entries = ledger.entries()
    return {
        "ledger": ledger.path.name,
        "verified": verified,
        "datasets": {
            name: {"spent": str(ledger.spent(name))} for name in dict.fromkeys(entry.dataset for entry in entries)
        },
        "entries": [entry.to_row() for entry in entries],
    }


def ledger_text(ledger: Ledger, *, verified: bool) -> str:
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
    if verified:
        lines.append("hash chain: verified")
    return "\n".join(lines)
