"""Audit a mechanism alone: one noisy number that one record changes, or two that it moves between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from das.accounting.conversion import epsilon_upper
from das.accounting.events import Event, pure_epsilon, zcdp_rho
from das.accounting.pld import LossDistribution, loss_distribution
from das.errors import Problem, UsageError
from das.evaluation.privacy_audit.claims import ADD_REMOVE, Claim
from das.evaluation.privacy_audit.epsilon_bound import Sample, empirical_epsilon
from das.evaluation.privacy_audit.exact_loss import product_epsilon_lower
from das.evaluation.privacy_audit.noise_law import check_noise_law
from das.evaluation.privacy_audit.result import Audit, PolicyFinding, finding_of
from das.evaluation.privacy_audit.streams_apart import check_streams
from das.exact import float_upper
from das.noise.mechanisms import MECHANISMS
from das.noise.stream import RunKey
from das.noise.two_sided import TwoSidedNoise

__all__ = ["MECHANISM_NAMES", "audit_mechanism", "mechanism_named"]

MECHANISM_NAMES = {"discrete-gaussian": "sigma2", "discrete-laplace": "scale"}
"""Mechanisms by name, and the column of `das.noise.mechanisms.MECHANISMS` that states their parameter."""
CHANGES = {
    ADD_REMOVE: ((1, 0), "One record is there, or is not: one number changes by one."),
    "replace": ((1, -1), "One record is replaced: one number grows by one and another falls by one."),
}
RUNS_A_KEY = 10_000


def audit_mechanism(
    noise: TwoSidedNoise,
    *,
    runs: int = 100_000,
    confidence: float = 0.999,
    seed: str = "audit",
    delta: Fraction = Fraction(1, 10**10),
    policies: Sequence[str] = (),
) -> Audit:
    """Audit two numbers with this noise: the change of a record is (1, 0) or (1, -1).

    Examples
    --------
    >>> from das.noise import DiscreteLaplace
    >>> found = audit_mechanism(DiscreteLaplace(2), runs=20_000)
    >>> found.verdict, [(each.claim.policy, each.claim.epsilon) for each in found.policies]
    ('consistent', [('add-remove', 0.5), ('replace', 1.0)])
    """
    known = tuple(CHANGES)
    unknown = [name for name in policies if name not in known]
    if unknown or runs < 4 or not 0 < confidence < 1:
        what = f"policy {unknown[0]!r}" if unknown else "audit"
        raise UsageError(Problem(what, "cannot be audited", f"policies are {', '.join(known)}; runs at least 4"))
    wanted = [name for name in known if not policies or name in policies]
    error = (1 - confidence) / (len(wanted) + 2)
    findings: list[PolicyFinding] = []
    draws: list[NDArray[np.int64]] = []
    for name in wanted:
        change, meaning = CHANGES[name]
        both = [_draws(noise, runs, f"{seed}, {name}, {which}") for which in ("one", "other")]
        draws += both
        claim = _claim(noise.event("count", name), name, meaning, change, delta)
        answers = both[0], both[1] + np.array(change)
        samples = [Sample(_scores(noise, each, change), 0) for each in answers]
        training, judging = (tuple(Sample(each.scores[half::2], 0) for each in samples) for half in (0, 1))
        findings.append(
            finding_of(
                claim,
                plan_epsilon=None,
                exact=product_epsilon_lower([(noise, each) for each in change], claim.delta),
                empirical=empirical_epsilon((training[0], training[1]), (judging[0], judging[1]), claim.delta, error),
                pair=f"(0, 0) and ({change[0]}, {change[1]})",
                search="the only change there is",
            )
        )
    every = np.concatenate(draws)
    return Audit(
        subject=noise.name,
        confidence=confidence,
        runs=runs,
        seed=seed,
        policies=tuple(findings),
        checks=(
            check_noise_law(every, [noise, noise], error),
            check_streams(every, ("the first number", "the second number"), error),
        ),
    )


def mechanism_named(name: str, parameters: dict[str, str | None]) -> TwoSidedNoise:
    """Make a mechanism from its name and the one parameter that it has."""
    column = MECHANISM_NAMES[name]
    given = {key: value for key, value in parameters.items() if value is not None}
    if set(given) != {column}:
        raise UsageError(Problem(f"audit {name}", "needs its parameter and no other", f'give --{column} "9/2"'))
    return MECHANISMS[column](given[column])  # type: ignore[call-arg]  # each is made from its one parameter


def _draws(noise: TwoSidedNoise, runs: int, seed: str) -> NDArray[np.int64]:
    """Two draws a run, each run a stream of its own; a key serves many."""
    found = []
    for first in range(0, runs, RUNS_A_KEY):
        streams = RunKey.for_testing(f"{seed}, from {first}").streams(b"audit of a mechanism")
        names = [("audit", str(run), "count", noise.name) for run in range(first, min(first + RUNS_A_KEY, runs))]
        found.append(noise.draw(streams.bundle(names), 2))
        streams.wipe()
    return np.concatenate(found)


def _scores(noise: TwoSidedNoise, answers: NDArray[np.int64], change: tuple[int, int]) -> NDArray[np.float64]:
    return np.asarray((noise.log_pmf(answers) - noise.log_pmf(answers - np.array(change))).sum(axis=1))


def _claim(event: Event, name: str, meaning: str, change: tuple[int, int], delta: Fraction) -> Claim:
    entries = tuple(each for each in change if each)
    pure, rho = pure_epsilon(event, entries), zcdp_rho(event, entries)
    quoted, best = None, math.inf
    if isinstance(pure, Fraction):
        delta, quoted = Fraction(0), float_upper(pure)
    elif isinstance(rho, Fraction):
        quoted = epsilon_upper(rho, delta)
        exact = loss_distribution([(event, entries)])
        best = exact.epsilon_upper(delta) if isinstance(exact, LossDistribution) else math.inf
    return Claim(
        policy=name,
        meaning=meaning,
        delta=delta,
        epsilon=None if quoted is None else min(quoted, best),
        quoted=quoted,
        adjacency=1,
        status="not supported" if quoted is None else "proved",
    )
