"""Repeated runs of several plans on the same true data, with testing keys.

The data are tabulated once for each plan. All runs happen in a private folder with a ledger of its own, so the ledger
of the data set is not touched, and nothing here is a release. Confidential data are allowed, because the folder is
removed when the runs have been compared with the truth.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from das.errors import Problem, UsageError
from das.evaluation.truth import Compared, compare_counts, queries_of, read_truth
from das.plan.plan import Plan
from das.runner import Runner, find_runner
from das.schema.counts import TrueCounts
from das.schema.query import Query
from das.storage.files import make_private
from das.storage.layout import Layout
from geography import Spine

__all__ = ["World", "for_testing"]


def for_testing(plan: Plan, ledger: Path) -> Plan:
    """Return the same plan under another name and with a separate ledger, so that the data set is not charged."""
    settings = plan.settings
    release = settings.release.model_copy(update={"name": "simulation"})
    data = settings.input.model_copy(update={"ledger": str(ledger.absolute()), "dataset": "simulation", "budget": None})
    return replace(plan, settings=settings.model_copy(update={"release": release, "input": data}))


@dataclass(frozen=True, kw_only=True)
class World:
    """Plans that share the same true data, tabulated once for each."""

    runner: Runner
    plans: Mapping[str, Plan]
    histograms: Mapping[str, Path]
    spine: Spine
    truth: Mapping[str, TrueCounts]

    @classmethod
    def tabulate(cls, plans: Mapping[str, Plan], home: Path, options: Sequence[str]) -> World:
        """Tabulate for each plan, and refuse plans whose true data differ from the first plan's."""
        runner = find_runner()
        for number, plan in enumerate(plans.values()):
            folder = home / f"truth-{number}"
            runner.run(plan, folder, upto="tabulate", options=options, testing_key="simulate", unprotected=True)
        return cls.opened(plans, home)

    @classmethod
    def opened(cls, plans: Mapping[str, Plan], home: Path) -> World:
        """Read what was tabulated before."""
        runner, histograms = find_runner(), {}
        for number, name in enumerate(plans):
            histograms[name] = Layout(home / f"truth-{number}").confidential.histograms
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
        return cls(runner=runner, plans=plans, histograms=histograms, spine=spine, truth=truth)

    def run(self, name: str, folder: Path, key: str, options: Sequence[str]) -> float:
        """Measure, unless the folder has measurements, and estimate; return the seconds of the estimation."""
        plan, inside = self.plans[name], Layout(folder).confidential
        if not folder.exists():
            make_private(folder)
            make_private(inside.path)
            shutil.copytree(self.histograms[name], inside.histograms)
            self.runner.run(plan, folder, upto="measure", options=options, testing_key=key, unprotected=True)
        began = perf_counter()
        self.runner.run(plan, folder, upto="estimate", options=options, testing_key=key, unprotected=True)
        return perf_counter() - began

    def compared(self, name: str, folder: Path, queries: Iterable[Query] | None = None) -> Iterator[Compared]:
        """Compare the estimated counts with the truth, for some queries or for every query of any of the plans."""
        every = {q.name: q for plan in self.plans.values() for q in queries_of(plan)}
        release = Layout(folder).release
        return compare_counts(self.plans[name], self.spine, self.truth, release, queries or every.values())
