"""A comparison of trees for people, for machines, and as TOML to paste into a config."""

from __future__ import annotations

from typing import Any

import tomli_w

from das.evaluation.format import finite, table
from das.evaluation.trees.comparison import Compared, TreeComparison
from das.plan.plan import Plan

__all__ = ["comparison_json", "comparison_text", "factor_text", "strategy_toml"]


def strategy_toml(plan: Plan) -> str:
    """Write a plan's shares as exact fractions: the part of a config that is called ``strategy``.

    Examples
    --------
    >>> from das.plan.load import load
    >>> print(strategy_toml(load("congenial-pl94")).splitlines()[1])
    state = "1/5"
    """
    strategy = plan.settings.strategy
    queries = {level: strategy.queries.get(level, strategy.queries.get("all", {})) for level in plan.levels}
    content = {
        "geolevels": {level: str(strategy.geolevels[level]) for level in plan.levels},
        "queries": {level: {name: str(share) for name, share in queries[level].items()} for level in plan.levels},
    }
    return tomli_w.dumps({"strategy": content})


def factor_text(found: TreeComparison) -> str:
    """Say how the errors compare with those of least squares, for the plan as it is."""
    factor, _ = found.factors()
    return (
        f"Measured on the generated country: the errors of this plan are {factor:.2f} times those of least squares "
        "with the same queries, the same shares and the same effective epsilon (geometric mean over levels and tables)."
    )


def comparison_text(found: TreeComparison) -> str:
    """Lay out a comparison for a terminal, with the recommended strategy as TOML."""
    rows = [
        {
            "ratio": each.ratio,
            "ratio_se": each.ratio_se,
            "epsilon": each.epsilon,
            "tree": each.candidate.tree,
            "shares": each.candidate.shares,
        }
        for each in found.compared
    ]
    columns = {
        "tree": "tree",
        "shares": "shares of the levels",
        "ratio": "error",
        "ratio_se": "+-",
        "epsilon": "effective epsilon",
    }
    best = found.recommended
    _, factor = found.factors()
    if best is found.own:
        verdict = "recommended: the plan as it is; no candidate is better by twice the standard error"
    else:
        percent = round(100 * (1 - best.ratio))
        verdict = (
            f"recommended: {best.candidate.tree}; shares of the levels: {best.candidate.shares}. Its errors are "
            f"{percent} % below the plan's own, and {factor:.2f} times those of least squares"
        )
    left_out = [f"not simulated, because doubles do not hold it: {words}" for words in found.left_out]
    return "\n".join(
        [
            f"Trees and shares for {found.plan.name}, simulated: {_where(found)}",
            "error: geometric mean, over levels and tables, of the mean |error| divided by the plan's own",
            "",
            table(columns, rows),
            *left_out,
            "",
            factor_text(found),
            "",
            table(_error_columns(found), _error_rows(found)),
            "",
            verdict,
            "",
            strategy_toml(best.candidate.plan),
        ]
    )


def comparison_json(found: TreeComparison) -> dict[str, Any]:
    """Describe a comparison for machines."""
    own, recommended = found.factors()
    content: dict[str, Any] = finite(
        {
            "simulated": _where(found),
            "seed": found.seed,
            "runs": found.runs,
            "leaves": len(found.country.spine.leaves),
            "people": int(found.country.cells.sum()),
            "tables": list(found.tables),
            "candidates": [_candidate(found, each) for each in found.compared],
            "left_out": list(found.left_out),
            "own": _candidate(found, found.own) | {"factor_to_least_squares": own},
            "recommended": _candidate(found, found.recommended)
            | {"factor_to_least_squares": recommended, "strategy": strategy_toml(found.recommended.candidate.plan)},
            "errors": _error_rows(found),
        }
    )
    return content


def _where(found: TreeComparison) -> str:
    country, spine = found.country, found.country.spine
    part = "" if len(spine.leaves) == country.whole else f" of {country.whole:,}"
    return (
        f"{len(spine.leaves):,}{part} geounits of level {spine.levels[-1]} with {int(country.cells.sum()):,} "
        f"generated people, seed {found.seed}, {found.runs} draws of each; no record was read"
    )


def _candidate(found: TreeComparison, each: Compared) -> dict[str, Any]:
    return {
        "tree": each.candidate.tree,
        "shares": each.candidate.shares,
        "ratio": each.ratio,
        "ratio_se": each.ratio_se,
        "epsilon": each.epsilon,
        "is_own": each is found.own,
        "is_recommended": each is found.recommended,
    }


def _error_columns(found: TreeComparison) -> dict[str, str]:
    named = {"level": "level", "query": "table", "own": "mean |error|: this plan", "squares_of_own": "least squares"}
    if found.recommended is found.own:
        return named
    return named | {"recommended": "recommended", "squares_of_recommended": "its least squares"}


def _error_rows(found: TreeComparison) -> list[dict[str, Any]]:
    """Mean absolute errors by level and table."""
    shown = {
        "own": found.own.errors.mean(axis=0),
        "squares_of_own": found.squares_of_own,
        "recommended": found.recommended.errors.mean(axis=0),
        "squares_of_recommended": found.squares_of_recommended,
    }
    return [
        {"level": level, "query": query, **{name: float(errors[row, column]) for name, errors in shown.items()}}
        for row, level in enumerate(found.plan.levels)
        for column, query in enumerate(found.tables)
    ]
