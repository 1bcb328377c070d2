"""Several releases together, in words: each release, what the ledgers charged, and both parts of a mixed budget."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from das.exact import quoted

__all__ = ["budget_sentence", "ledger_sentences", "release_rows"]

PARAMETER = {"zcdp": "rho", "pure": "epsilon"}


def release_rows(statement: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Give name, budget and status of each release that was looked at; empty for one alone.

    Examples
    --------
    >>> row = {"release": "one", "framework": "zcdp", "budget": "1/2", "epsilon": 6.84, "method": "congenial",
    ...        "seeded": False, "status": "accounted together"}
    >>> release_rows({"releases": [row]})
    [('one', 'rho = 1/2, nominal epsilon 6.840, congenial', 'accounted together')]
    """
    rows = []
    for each in statement.get("releases") or ():
        name = each["release"]
        if each.get("folder") and each["folder"] != name:
            name = f"{name} ({each['folder']})"
        words = ""
        if "budget" in each:
            words = f"{PARAMETER[each['framework']]} = {each['budget']}, nominal epsilon {quoted(each['epsilon'])}"
            words += f", {each['method']}" + (", a test run: its noise is known" if each["seeded"] else "")
        rows.append((name, words, each["status"]))
    return rows


def ledger_sentences(statement: Mapping[str, Any]) -> list[str]:
    """Say what the ledgers of the data set charged in all, and which part of it is accounted here.

    Examples
    --------
    >>> row = {"ledger": "ledger.sqlite", "dataset": "d", "framework": "zcdp", "total": "3", "charged": "2",
    ...        "charged_here": "3/2", "charged_elsewhere": "1/2", "runs": 3, "runs_elsewhere": 1}
    >>> for sentence in ledger_sentences({"ledgers": [row]}):
    ...     print(sentence)
    Ledger ledger.sqlite: on data set d, rho = 2 of 3 was charged in all, by 3 runs.
    Of this, 1/2 is NOT accounted here (1 run, or lost entries): the numbers above are of the listed releases only.
    """
    found = []
    for row in statement.get("ledgers") or ():
        if "reason" in row:
            found.append(f"Ledger, {row['ledger']}: it {row['reason']}. What else was charged is not known here.")
            continue
        parameter = PARAMETER.get(row["framework"].partition(",")[0], "")
        of = f" of {row['total']}" if row["total"] else ""
        charged = f"{parameter} = {row['charged']}{of} was charged in all, by {_count(row['runs'])}"
        if not row["runs"]:
            charged = "nothing was charged"
        found.append(f"Ledger {row['ledger']}: on data set {row['dataset']}, {charged}.")
        if Fraction(row["charged_elsewhere"]):
            missing = (
                f"{row['charged_elsewhere']} is NOT accounted here ({_count(row['runs_elsewhere'])}, or lost entries)"
            )
            found.append(f"Of this, {missing}: the numbers above are of the listed releases only.")
        elif row["runs"]:
            found.append("All of it is accounted here.")
        if row.get("apart"):
            listed = "; ".join(f"{each['charged']} by {each['release']}" for each in row["apart"])
            found.append(f"Among what is not accounted here: {listed}. Why: {row['apart_reason']}.")
    return found


def budget_sentence(nominal: Mapping[str, Any], delta: str = "") -> str:
    """Say both parts of a mixed budget and what they are together; empty where it is of one kind.

    Examples
    --------
    >>> budget_sentence({"rho": "1/2", "pure_epsilon": 1.0, "epsilon": 7.25})
    'nominal: rho = 0.500 of the releases in zCDP and epsilon 1.000 of the pure ones; together epsilon 7.250'
    """
    if nominal.get("rho") in (None, "-") or not isinstance(nominal.get("pure_epsilon"), float):
        return ""
    rho, pure = quoted(nominal["rho"]), quoted(nominal["pure_epsilon"])
    parts = f"rho = {rho} of the releases in zCDP and epsilon {pure} of the pure ones"
    return f"nominal: {parts}; together epsilon {quoted(nominal['epsilon'])}{delta}"


def _count(runs: int) -> str:
    return f"{runs} run" if runs == 1 else f"{runs} runs"
