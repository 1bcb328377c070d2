"""One truth, tabulated once, for repeated runs of several plans with testing keys.

All of it happens in a private folder whose runs are listed in a ledger of their own: no data set's ledger hears of it,
and nothing of it is a release.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from das.errors import Problem, UsageError
from das.evaluation.truth import Compared, compare_counts, queries_of, read_truth
from das.plan.plan import Plan
from das.runner import Runner, find_runner
from das.schema.counts import TrueCounts
from das.storage.files import make_private
from das.storage.layout import Layout
from geography import Spine

__all__ = ["World", "for_testing"]


def for_testing(plan: Plan, ledger: Path) -> Plan:
    """The same plan under another name and with a ledger of its own, so that no data set's ledger hears of it."""
    settings = plan.settings
    unnamed = settings.release.model_copy(update={"name": "simulation"})
    unbooked = settings.input.model_copy(update={"ledger": str(ledger), "dataset": "simulation", "budget": None})
    return replace(plan, settings=settings.model_copy(update={"release": unnamed, "input": unbooked}))


@dataclass(frozen=True, kw_only=True)
class World:
    """The plans, and the truth that they share, tabulated once for each."""

    engine: Runner
    plans: Mapping[str, Plan]
    histograms: Mapping[str, Path]
    spine: Spine
    truth: Mapping[str, TrueCounts]

    @classmethod
    def tabulate(cls, plans: Mapping[str, Plan], home: Path, options: Sequence[str]) -> World:
        """Tabulate for each plan, and refuse those that do not share the truth of the first."""
        engine, histograms = find_runner(), {}
        for number, (name, plan) in enumerate(plans.items()):
            folder = home / f"truth-{number}"
            engine.run(plan, folder, upto="tabulate", options=options, testing_key="simulate")
            histograms[name] = Layout(folder).confidential.histograms
        first, *others = plans
        spine = Spine.load(histograms[first] / "spine.parquet")
        truth = read_truth(plans[first], histograms[first])
        leaf = truth[plans[first].levels[-1]]
        for name in others:
            same = plans[name].schema == plans[first].schema
            same = same and Spine.load(histograms[name] / "spine.parquet") == spine
            if same:
                other = read_truth(plans[name], histograms[name])[plans[first].levels[-1]]
                same = leaf.equals(other)
            if not same:
                reason = f"is not about the same data, geography and schema as {first!r}"
                remedy = "compare plans that differ in strategy or estimation"
                raise UsageError(Problem(f"plan {name!r}", reason, remedy))
        return cls(engine=engine, plans=plans, histograms=histograms, spine=spine, truth=truth)

    def run(self, name: str, folder: Path, key: str, options: Sequence[str]) -> float:
        """Measure, unless that was done here, and estimate; returns the seconds that estimation took."""
        plan, inside = self.plans[name], Layout(folder).confidential
        if not folder.exists():
            folder.mkdir()
            make_private(inside.path)
            shutil.copytree(self.histograms[name], inside.histograms)
            self.engine.run(plan, folder, upto="measure", options=options, testing_key=key)
        began = perf_counter()
        self.engine.run(plan, folder, upto="estimate", options=options, testing_key=key)
        return perf_counter() - began

    def compared(self, name: str, folder: Path) -> Iterator[Compared]:
        """Compare what was estimated with the truth, for every query of any of the plans."""
        queries = {q.name: q for plan in self.plans.values() for q in queries_of(plan)}
        release = Layout(folder).release
        return compare_counts(self.plans[name], self.spine, self.truth, release, queries.values())
