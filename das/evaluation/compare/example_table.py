"""Comparison on the example table: distance from the truth of three methods at the same effective privacy.

The methods are raw noise, least squares after it, and conditioned noise. Conditioning costs privacy: the normaliser
depends on the data (theorem 5.4 of the specification, `das.accounting.conditioning.conditioned_geometric`). Each
method's noise is therefore scaled so that the bound for one record that changes within a class is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from das.accounting.conditioning import conditioned_geometric
from das.errors import ConfigError, Problem
from das.estimation import estimate_family
from das.estimation.problem import FamilyProblem, Measured
from das.evaluation.format import table
from das.noise import DiscreteLaplace, RunKey, Streams
from das.noise.rational import Rational, positive_rational
from das.schema.limits import Limits
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema
from das.table.effective_sample_size import effective_samples
from das.table.example import AGES, COUNTS, MINORS, SEX_BY_AGE, SOLVED
from das.table.independence import IndependenceSampler
from das.table.quotient import TableLaw, TableSampler
from das.table.systems import public_start

__all__ = ["Distance", "compare_example", "comparison_text", "distances", "matched_epsilon_lower", "post_processed"]

_RESOLUTION = 1 << 20
_PROPOSALS = ("5/2", "2", "20/11", "5/3", "20/13", "10/7", "5/4")  # scales for noise of scale 2
_TRACE_POINTS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """Mean distance of one contender's tables from the truth, with standard errors."""

    name: str
    epsilon: float | None
    runs: int
    l1: float
    l1_error: float
    l2: float
    l2_error: float
    negative: float
    """Share of the counts that are below zero."""


def distances(
    truth: ArrayLike, draws: Mapping[str, NDArray[Any]], epsilons: Mapping[str, float] | None = None
) -> list[Distance]:
    """Measure any contenders: for each name an array (runs, cells) around one truth.

    Examples
    --------
    >>> found = distances([3, 4], {"one off": np.array([[3, 5], [2, 4]])}, {"one off": 1.0})
    >>> found[0].l1, found[0].l2, found[0].epsilon
    (1.0, 1.0, 1.0)
    """
    found = []
    for name, tables in draws.items():
        away = np.asarray(tables) - np.asarray(truth)
        if away.ndim != 2 or not len(away):
            raise ConfigError(Problem(name, "its draws are not rows of tables", "give an array (runs, cells)"))
        l1, l2 = np.abs(away).sum(axis=1), np.sqrt((away.astype(np.float64) ** 2).sum(axis=1))
        root = np.sqrt(max(len(away) - 1, 1))
        found.append(
            Distance(
                name=name,
                epsilon=(epsilons or {}).get(name),
                runs=len(away),
                l1=float(l1.mean()),
                l1_error=float(l1.std() / root),
                l2=float(l2.mean()),
                l2_error=float(l2.std() / root),
                negative=float((np.asarray(tables) < 0).mean()),
            )
        )
    return found


def matched_epsilon_lower(epsilon: Fraction) -> Fraction:
    """Return the epsilon of a cell whose *conditioned* noise loses at most `epsilon` when one record changes cell.

    The largest multiple of ``2^-20`` with ``2 e + log(2 - e^(-2 e)) <= epsilon``.

    Examples
    --------
    >>> round(float(matched_epsilon_lower(Fraction(1))), 4)
    0.3101
    """
    low, high = 0, int(epsilon * _RESOLUTION / 2)
    while low < high:
        middle = (low + high + 1) // 2
        cost = conditioned_geometric(Fraction(middle, _RESOLUTION), 2, "equalities and box").cost
        low, high = (middle, high) if cost <= epsilon else (low, middle - 1)
    if not low:
        raise ConfigError(Problem("epsilon", "it is too small to be matched", "give at least 1/1000"))
    return Fraction(low, _RESOLUTION)


def compare_example(*, epsilon: Rational = "1", runs: int = 300, steps: int = 200_000) -> dict[str, Any]:
    """Compare on the sex-by-age example; all of it is public, so its noise comes from a testing key.

    Parameters
    ----------
    epsilon : Fraction, int or str
        The effective epsilon of one record that changes its cell within a class of the public facts.
    runs : int
        Tables of each contender.
    steps : int
        Proposals of each run of the independence sampler.

    Returns
    -------
    dict
        Plain data: ``contenders``, and the acceptance and traces of the independence sampler.
    """
    epsilon = positive_rational(epsilon, "epsilon")
    if runs < 2 or steps < 2:
        raise ConfigError(Problem("comparison", "there are no averages of fewer than two runs", "give runs and steps"))
    streams = RunKey.for_testing("comparison").streams(b"sex by age")
    cell = epsilon / 2
    raw = DiscreteLaplace(1 / cell).draw(streams.bundle([("compare", "", "raw", "")]), runs * len(COUNTS))
    noisy = raw.reshape(runs, -1) + np.array(COUNTS)
    matched = matched_epsilon_lower(epsilon)
    laws = {e: TableSampler(SEX_BY_AGE, DiscreteLaplace(1 / e)).given(COUNTS) for e in (matched, cell)}

    def conditioned(e: Fraction) -> NDArray[np.int64]:
        return laws[e].draw(streams.bundle([("compare", "", f"congenial {e}", "")]), runs).reshape(runs, -1)

    same = float(conditioned_geometric(cell, 2, "equalities and box").cost)
    draws = {
        "raw noise": noisy,
        "nonnegative least squares": post_processed(noisy, DiscreteLaplace(1 / cell).variance()),
        "congenial, matched": conditioned(matched),
        "congenial, same noise": conditioned(cell),
    }
    epsilons = dict.fromkeys(draws, float(epsilon)) | {"congenial, same noise": same}
    return {
        "table": "sex by 23 age groups; the totals of sex and of voting age are public",
        "epsilon": float(epsilon),
        "epsilon_of_a_cell": {"raw": float(cell), "matched": float(matched)},
        "log_normalizer": laws[cell].log_normalizer,
        "contenders": [asdict(distance) for distance in distances(COUNTS, draws, epsilons)],
        "chain": _chain(streams, laws[cell], cell, steps),
    }


def post_processed(noisy: NDArray[np.int64], variance: float) -> NDArray[np.int64]:
    """Make noisy tables conform as a release does: nonnegative least squares with the public totals, then rounding."""
    voting = {"minor": AGES[:MINORS], "adult": AGES[MINORS:]}
    schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", AGES, {"voting": voting})))
    truth = np.array(COUNTS).reshape(2, -1)
    totals = {"sex": truth.sum(axis=1), "voting": np.array([truth[:, :MINORS].sum(), truth[:, MINORS:].sum()])}
    limits = tuple(
        Limits(query=parse_query(schema, name), lower=total[None], upper=total[None]) for name, total in totals.items()
    )
    detailed, cells = parse_query(schema, "detailed"), np.arange(len(COUNTS))
    found = []
    with threadpool_limits(limits=1):  # threads slow down matrices this small
        for row in noisy:
            measured = (Measured(query=detailed, values=row[None], variance=variance),)
            family = FamilyProblem(
                level="table", geocodes=("0",), cells=cells, parent=None, measured=measured, limits=limits
            )
            found.append(estimate_family(family, solver="fast").counts[0])
    return np.array(found)


def _chain(streams: Streams, law: TableLaw, cell: Fraction, steps: int) -> dict[str, Any]:
    """Run the independence sampler: acceptance by proposal and solved cells, and two traces of the distance."""
    noise = DiscreteLaplace(1 / cell)
    equilibrium = law.draw(streams.bundle([("compare", "", "start", "")]), 1)[0, 0]
    acceptance = [
        {
            "solved": name,
            "proposal": float(2 * cell / Fraction(scale)),
            "acceptance": IndependenceSampler(SEX_BY_AGE, noise, DiscreteLaplace(Fraction(scale) / (2 * cell)), solved)
            .given(COUNTS)
            .run(streams, steps, equilibrium)
            .acceptance,
        }
        for name, solved in SOLVED.items()
        for scale in _PROPOSALS
    ]
    first = next(iter(SOLVED.values()))
    chain = IndependenceSampler(SEX_BY_AGE, noise, DiscreteLaplace(Fraction(5, 6) / cell), first).given(COUNTS)
    traces = {}
    for name, start in {"from an exact draw": equilibrium, "from a public table": public_start(SEX_BY_AGE)}.items():
        trace = chain.run(RunKey.for_testing(name).streams(b"trace"), steps, start)
        values = trace.values(np.abs(trace.visited - np.array(COUNTS)).sum(axis=1))
        traces[name] = {
            "acceptance": trace.acceptance,
            "effective_samples": effective_samples(values),
            "distance": values[np.linspace(0, steps - 1, min(steps, _TRACE_POINTS), dtype=np.int64)].tolist(),
        }
    return {"steps": steps, "proposal": float(Fraction(6, 5) * cell), "acceptance": acceptance, "traces": traces}


def comparison_text(found: Mapping[str, Any]) -> str:
    """Lay the contenders out for a terminal."""
    columns = {"name": "contender", "epsilon": "effective epsilon", "l1": "mean L1", "l2": "mean L2", "negative": "< 0"}
    rows: Sequence[Mapping[str, Any]] = found["contenders"]
    return table(columns, rows)
