"""Audit a plan: does the program that runs it keep what its statement promises?

No record is read. A small world of the plan's shape is generated, the costliest pair of data sets of each policy is
searched for, its exact loss is computed, and the mechanism is run on both data sets under thousands of testing keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from das.errors import Problem, ProblemsFound, UsageError
from das.evaluation.privacy_audit.bystanders import with_worst_bystanders
from das.evaluation.privacy_audit.claims import Claim, accounted_events, claims_of
from das.evaluation.privacy_audit.conditioned_law import check_conditioned_law
from das.evaluation.privacy_audit.conditioned_loss import conditioned_epsilon_lower, tree_of_world
from das.evaluation.privacy_audit.epsilon_bound import EpsilonBound, Sample, empirical_epsilon
from das.evaluation.privacy_audit.exact_loss import product_epsilon_lower
from das.evaluation.privacy_audit.measured_list import check_measured, released_events
from das.evaluation.privacy_audit.mechanism_runs import Conditioned, Measuring, Mechanism, Runs, facts_between, keys
from das.evaluation.privacy_audit.noise_law import check_noise_law
from das.evaluation.privacy_audit.refusals import check_refusals
from das.evaluation.privacy_audit.result import Audit, PolicyFinding, finding_of
from das.evaluation.privacy_audit.small_world import Counts, SmallWorld, small_world
from das.evaluation.privacy_audit.streams_apart import check_streams
from das.evaluation.privacy_audit.whole_run import check_whole_run
from das.evaluation.privacy_audit.worst_pair import Pair, Search, worst_pair
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.runner import Progress

__all__ = ["audit_plan"]

EVALUATIONS = {"pure": 64, "zcdp": 8}
"""How often the exact loss of conditioned draws is computed for a policy; a pure one is a formula, the other a law."""
INCLUDED = {"semi": ("irreducible", "nearest"), "irreducible": ("nearest",)}
"""Policies whose changes are among those of another."""
SWEPT = {"measure": 300, "congenial": 24}
COMPARED_RUNS = 4096
OTHER_TESTS = 3
"""Tests beside those of the policies: of the noise's law, of its independence, and of refusals."""


def audit_plan(
    plan: Plan,
    *,
    runs: int = 1000,
    confidence: float = 0.999,
    seed: str = "audit",
    policies: Sequence[str] = (),
    sweep: int | None = None,
    with_whole_run: bool = True,
    progress: Progress | None = None,
) -> Audit:
    """Audit a plan on a generated world of its shape.

    Parameters
    ----------
    plan : Plan
        What is audited; its input is not read.
    runs : int
        Runs of the mechanism on each data set of each policy.
    confidence : float
        With which all findings together hold.
    seed : str
        Text of the testing keys.
    policies : sequence of str
        Which policies; all that the accountant lists by default.
    sweep : int, optional
        How many pairs of neighbours are tried for refusals; 300 by default, and 24 of conditioned draws.
    with_whole_run : bool
        Whether the stages are run once as well, by the installed runner.
    progress : callable, optional
        Called with ``"audit"``, the number of runs done, and the number of all runs.
    """
    if runs < 4 or not 0 < confidence < 1:
        raise UsageError(Problem("audit", "needs at least 4 runs and a confidence between 0 and 1"))
    world = small_world(plan)
    claims, of_plan = claims_of(world.plan, world.spine), _plan_claims(plan)
    unknown = [name for name in policies if name not in claims]
    if unknown:
        known = f"this plan has {', '.join(claims)}"
        raise UsageError(Problem(f"policy {unknown[0]!r}", "is not one that is accounted here", known))
    claims = {name: claim for name, claim in claims.items() if not policies or name in policies}
    conditioned = plan.mechanism_stage.sampler is not None
    mechanism: Mechanism = Conditioned(world) if conditioned else Measuring(world)
    error = (1 - confidence) / (len(claims) + OTHER_TESTS)
    search = Search(world)
    subjects = _with_included([_subject(search, claim, conditioned) for claim in claims.values()])
    wanted = {each.pair.one.tobytes() + each.pair.other.tobytes() for each in subjects if each.pair is not None}
    report, done = progress or (lambda stage, number, of: None), 0

    def told() -> None:
        nonlocal done
        done += 1
        report("audit", done, 2 * runs * len(wanted))

    findings: list[PolicyFinding] = []
    pairs: list[Pair] = []
    made: list[tuple[Counts, Counts, Runs]] = []
    repeated: dict[bytes, tuple[Runs, Runs]] = {}
    for subject in subjects:
        seen = None
        if subject.pair is not None:
            pair, name = subject.pair, subject.pair.one.tobytes() + subject.pair.other.tobytes()
            if name in repeated:  # two policies have the same costliest pair
                both = repeated[name]
            else:
                both = repeated[name] = _repeated(mechanism, pair, runs, f"{seed}, {subject.claim.policy}", told)
                pairs.append(pair)
                made += [(pair.one, pair.other, both[0]), (pair.other, pair.one, both[1])]
            seen = _empirical(world, pair, both, subject.claim, error)
        findings.append(
            finding_of(
                subject.claim,
                plan_epsilon=of_plan[subject.claim.policy].epsilon if subject.claim.policy in of_plan else None,
                exact=subject.exact,
                empirical=seen,
                pair=subject.words,
                search=subject.search,
            )
        )
    checks = [check_measured(released_events(world.plan), accounted_events(world.plan, world.spine), "the plan")]
    if conditioned:
        checks.append(check_conditioned_law(world, made, error))
    else:
        noise = np.concatenate([np.zeros((0, len(world.rows)), np.int64), *(_noise(world, x, r) for x, _, r in made)])
        checks.append(check_noise_law(noise, world.mechanisms, error))
        checks.append(check_streams(noise[:COMPARED_RUNS], world.names, error))
    swept = SWEPT[plan.mechanism_stage.name] if sweep is None else sweep
    checks.append(check_refusals(mechanism, search, pairs, sweep=swept, seed=seed, error=error))
    if with_whole_run and pairs:
        checks += check_whole_run(mechanism, pairs[0], seed)
    return Audit(
        subject=f"plan {plan.name!r} ({plan.source.name})",
        confidence=confidence,
        runs=runs,
        seed=seed,
        policies=tuple(findings),
        checks=tuple(checks),
        world=_described(world),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A claim, the pair of data sets that it is audited on, and their exact loss."""

    claim: Claim
    pair: Pair | None
    exact: float | None
    words: str
    search: str


def _subject(search: Search, claim: Claim, conditioned: bool) -> _Subject:
    pair = worst_pair(search, claim.policy, claim.adjacency, crowd=0 if conditioned else 1)
    if isinstance(pair, str) or claim.epsilon is None:
        words = pair if isinstance(pair, str) else claim.status
        return _Subject(claim=claim, pair=None, exact=None, words=words, search="none")
    if conditioned:
        evaluations = EVALUATIONS["pure" if search.world.plan.framework == "pure" else "zcdp"]
        pair, exact = with_worst_bystanders(pair, lambda each: _exact(search.world, each, claim, True), evaluations)
    else:
        exact = _exact(search.world, pair, claim, False)
    how = "all changes tried" if pair.is_exhaustive else "costliest first changes, each with every second one"
    return _Subject(claim=claim, pair=pair, exact=exact, words=pair.words, search=f"{how}; cost {pair.cost:.6g}")


def _with_included(subjects: list[_Subject]) -> list[_Subject]:
    """Give a policy the costliest pair of those that it includes, where that reveals more than its own."""
    by_name = {subject.claim.policy: subject for subject in subjects}
    out = []
    for own in subjects:
        others = [by_name[name] for name in INCLUDED.get(own.claim.policy, ()) if name in by_name]
        found = [each for each in (own, *others) if each.exact is not None] if own.exact is not None else []
        best = max(found, key=lambda each: each.exact or 0.0, default=own)
        out.append(replace(best, claim=own.claim))
    return out


def _exact(world: SmallWorld, pair: Pair, claim: Claim, conditioned: bool) -> float:
    if conditioned:
        tree = tree_of_world(world, facts_between(world, pair.one, pair.other))
        return conditioned_epsilon_lower(tree, pair.one, pair.other, claim.delta)
    change = world.rows @ (pair.other - pair.one)
    return product_epsilon_lower(zip(world.mechanisms, change.tolist(), strict=True), claim.delta)


def _repeated(mechanism: Mechanism, pair: Pair, runs: int, seed: str, told: Callable[[], None]) -> tuple[Runs, Runs]:
    facts = facts_between(mechanism.world, pair.one, pair.other)
    one = mechanism.runs(pair.one, facts, keys(f"{seed}, one", runs), told)
    return one, mechanism.runs(pair.other, facts, keys(f"{seed}, other", runs), told)


def _empirical(world: SmallWorld, pair: Pair, both: tuple[Runs, Runs], claim: Claim, error: float) -> EpsilonBound:
    """Score every release by its log-likelihood ratio, and split the runs of each data set in halves."""
    samples = [Sample(_scores(world, pair, runs), runs.refused) for runs in both]
    halves = [_halves(sample) for sample in samples]
    training, judging = ((halves[0][k], halves[1][k]) for k in (0, 1))
    return empirical_epsilon(training, judging, claim.delta, error)


def _scores(world: SmallWorld, pair: Pair, runs: Runs) -> Any:
    """Log-likelihood ratio of each release; conditioned draws have a constant beside it, which moves no threshold."""
    one, other = world.rows @ pair.one, world.rows @ pair.other
    scores = np.zeros(len(runs.answers))
    for row in np.flatnonzero(one != other).tolist():
        noise = world.mechanisms[row]
        scores += noise.log_pmf(runs.answers[:, row] - one[row]) - noise.log_pmf(runs.answers[:, row] - other[row])
    return scores


def _halves(sample: Sample) -> tuple[Sample, Sample]:
    """Every other run; refusals are split evenly."""
    return (
        Sample(sample.scores[::2], (sample.refused + 1) // 2),
        Sample(sample.scores[1::2], sample.refused // 2),
    )


def _noise(world: SmallWorld, data: Counts, runs: Runs) -> Counts:
    return np.asarray(runs.answers - world.rows @ data)


def _plan_claims(plan: Plan) -> dict[str, Claim]:
    """The claims of the whole plan, on its geography where that can be read."""
    try:
        return claims_of(plan, spine_of(plan))
    except ProblemsFound:
        return claims_of(plan, None)


def _described(world: SmallWorld) -> dict[str, Any]:
    plan = world.plan
    return {
        "is_the_plan_itself": world.is_whole,
        "places": {level: world.spine.size(level) for level in plan.levels},
        "labels": {attribute.name: len(attribute.labels) for attribute in plan.schema.attributes},
        "columns": world.columns,
        "released_numbers": len(world.rows),
        "method": plan.settings.estimate.method,
    }
