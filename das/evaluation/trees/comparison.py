"""Compare trees and shares of a congenial plan by their errors on a generated country, and recommend one.

First every candidate tree is drawn with the plan's own shares of the levels, then the best trees with other shares. The
number by which candidates are ordered is the geometric mean, over levels and tables, of the mean absolute error
divided by that of the plan itself. Tables are those that are measured or tabulated, and the total. The plan itself is
recommended unless another candidate is better by more than twice the standard error of that number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from das.congenial.messages import WindowTooSmall
from das.errors import Problem, UsageError
from das.evaluation.compare.matching import effective_epsilon, matched_budget_lower
from das.evaluation.country import Country, answers_of, generate_country
from das.evaluation.trees.draw import congenial_draws
from das.evaluation.trees.least_squares import least_squares
from das.evaluation.truth import queries_of
from das.plan.candidate_trees import Candidate, candidate_shares, candidate_trees, own, with_shares
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.plan.resolve import MOST_CELLS_AT_ONCE
from das.runner import Progress
from das.schema.query import Query, parse_query
from geography import Spine

__all__ = ["Compared", "TreeComparison", "Trial", "compare_trees", "log_ratio"]

RUNS = 3
KEPT = 2
"""Trees that are tried with other shares, besides the plan's own."""

Errors = NDArray[np.float64]
"""Mean absolute errors, levels x tables; or runs x levels x tables."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Compared:
    """A candidate, its errors (runs x levels x tables), how they compare with the plan's own, and its epsilon.

    ``ratio`` is the geometric mean of the errors divided by the plan's own. ``epsilon`` is the effective epsilon over
    the whole geography, None where it is no proved number.
    """

    candidate: Candidate
    errors: Errors
    ratio: float
    ratio_se: float
    epsilon: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeComparison:
    """All candidates from the best to the worst, and what least squares achieves in place of two of them.

    ``squares_of_own`` and ``squares_of_recommended`` are errors (levels x tables) of least squares with the same
    queries and shares, and with noise for the same effective epsilon.
    """

    plan: Plan
    country: Country
    tables: tuple[str, ...]
    seed: int
    runs: int
    compared: tuple[Compared, ...]
    left_out: tuple[str, ...]
    own: Compared
    recommended: Compared
    squares_of_own: Errors
    squares_of_recommended: Errors

    def factors(self) -> tuple[float, float]:
        """How many times larger the congenial errors are than those of least squares: the plan's, the recommended."""
        pairs = (self.own, self.squares_of_own), (self.recommended, self.squares_of_recommended)
        own, recommended = (float(np.exp(log_ratio(each.errors.mean(axis=0), squares))) for each, squares in pairs)
        return own, recommended


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """On what candidates are tried: a generated country, the tables that count, and testing keys, one for each run."""

    country: Country
    tables: tuple[Query, ...]
    keys: tuple[str, ...]
    whole: Spine

    @classmethod
    def of(cls, plan: Plan, seed: int, runs: int, leaves: int | None) -> Trial:
        """Generate the country of a plan; the tables are the total and what is measured or tabulated."""
        queries = (parse_query(plan.schema, "total"), *queries_of(plan))
        tables = tuple({tuple(query.axes.values()): query for query in queries}.values())
        keys = tuple(f"trees-{seed}-{run}" for run in range(runs))
        country = generate_country(plan, seed, leaves)
        return cls(country=country, tables=tables, keys=keys, whole=spine_of(plan))

    def errors(self, cells: NDArray[np.int64]) -> Errors:
        """Mean absolute errors of counts, leaves x cells."""
        spine, away = self.country.spine, cells - self.country.cells
        return np.array(
            [
                [np.abs(answers_of(spine, away, level, query)[spine.real(level)]).mean() for query in self.tables]
                for level in spine.levels
            ]
        )

    def drawn(self, plan: Plan) -> Errors | None:
        """Errors of congenial draws, one for each key; None if doubles do not hold the messages."""
        try:
            return np.stack([self.errors(cells) for cells in congenial_draws(plan, self.country, self.keys)])
        except WindowTooSmall:
            return None

    def squared(self, plan: Plan, epsilon: float | None) -> Errors:
        """Errors of least squares with the plan's queries and shares, averaged over the first keys."""
        plan = plan.with_method("nonnegative-l2").with_information("full")
        if epsilon is not None:
            plan = plan.with_budget(matched_budget_lower(plan, Fraction(epsilon), self.whole))
        runs = [self.errors(least_squares(plan, self.country, key)) for key in self.keys[:RUNS]]
        return np.asarray(np.mean(runs, axis=0))

    def epsilon(self, plan: Plan) -> float | None:
        """Effective epsilon over the whole geography."""
        try:
            return effective_epsilon(plan, self.whole)
        except UsageError:  # there is no proved number
            return None


def compare_trees(
    plan: Plan, *, seed: int = 2020, runs: int = RUNS, leaves: int | None = None, progress: Progress | None = None
) -> TreeComparison:
    """Simulate candidate trees and shares on a generated country.

    Parameters
    ----------
    plan : Plan
        With the congenial method. Its geography and bounds are read; its records are not.
    seed : int
        Of the generated people, and of the testing keys.
    runs : int
        Draws of each candidate.
    leaves : int, optional
        How many leaves are simulated at most.
    progress : callable, optional
        Called with ``"trees"``, the number of candidates done, and the number of all.
    """
    _require_suitable(plan)
    trial = Trial.of(plan, seed, runs, leaves)
    trees, shares = candidate_trees(plan), candidate_shares(plan)
    steps = _Steps(3 + len(trees) + (KEPT + 1) * len(shares), progress)
    reference = trial.drawn(plan)
    if reference is None:
        reason = "the simulation holds counts in doubles, and those do not hold this plan's"
        raise UsageError(Problem("--compare-trees", reason, "use Gaussian noise, or spend more"))
    found, left_out = [_compared(trial, own(plan), reference, reference)], list[str]()
    known = {plan.digest}

    def draw(candidates: Iterable[Candidate]) -> None:
        for each in candidates:
            steps.step()
            if each.plan.digest in known:  # another name of what was drawn
                continue
            known.add(each.plan.digest)
            errors = trial.drawn(each.plan)
            if errors is None:
                left_out.append(f"{each.tree}; {each.shares}")
            else:
                found.append(_compared(trial, each, errors, reference))

    steps.step()
    draw(trees)
    best = [found[0], *sorted(found[1:], key=lambda each: each.ratio)[:KEPT]]
    more = [with_shares(each.candidate, *share) for each in best for share in shares.items()]
    draw(each for each in more if each is not None)
    first = min(found, key=lambda each: each.ratio)
    recommended = first if first.ratio + 2 * first.ratio_se < 1 else found[0]
    squares = trial.squared(plan, found[0].epsilon)
    steps.step()
    others = recommended is not found[0]
    better = trial.squared(recommended.candidate.plan, recommended.epsilon) if others else squares
    steps.end()
    return TreeComparison(
        plan=plan,
        country=trial.country,
        tables=tuple(query.name for query in trial.tables),
        seed=seed,
        runs=runs,
        compared=tuple(sorted(found, key=lambda each: each.ratio)),
        left_out=tuple(left_out),
        own=found[0],
        recommended=recommended,
        squares_of_own=squares,
        squares_of_recommended=better,
    )


def log_ratio(errors: Errors, reference: Errors) -> float:
    """Mean logarithm of the ratio of errors; what is known exactly has none, and a ratio is at least a hundredth.

    Examples
    --------
    >>> round(float(np.exp(log_ratio(np.array([[4.0, 1.0, 0.0]]), np.array([[1.0, 1.0, 0.0]])))), 3)
    2.0
    """
    counted = reference > 0
    ratios = np.maximum(errors[counted] / reference[counted], 0.01)
    return float(np.log(ratios).mean()) if counted.any() else 0.0


def _require_suitable(plan: Plan) -> None:
    if plan.mechanism_stage.measures:
        reason = f'compares trees for method = "congenial", and this plan has {plan.settings.estimate.method!r}'
        raise UsageError(Problem("--compare-trees", reason, "choose that method under [estimate]"))
    if plan.schema.size > MOST_CELLS_AT_ONCE:
        reason = f"the schema has {plan.schema.size:,} cells, too many to simulate here"
        raise UsageError(Problem("--compare-trees", reason, "use `das simulate` on public or generated data"))


def _compared(trial: Trial, candidate: Candidate, errors: Errors, reference: Errors) -> Compared:
    mean = reference.mean(axis=0)
    runs = [log_ratio(run, mean) for run in errors]
    ratio = float(np.exp(log_ratio(errors.mean(axis=0), mean)))
    spread = float(np.std(runs, ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else 0.0
    epsilon = trial.epsilon(candidate.plan)
    return Compared(candidate=candidate, errors=errors, ratio=ratio, ratio_se=ratio * spread, epsilon=epsilon)


class _Steps:
    """Counts the candidates that are done."""

    def __init__(self, of: int, progress: Progress | None) -> None:
        self.done, self.of, self.progress = -1, of, progress or (lambda stage, done, of: None)
        self.step()

    def step(self) -> None:
        self.done += 1
        self.progress("trees", self.done, self.of)

    def end(self) -> None:
        self.progress("trees", self.of, self.of)
