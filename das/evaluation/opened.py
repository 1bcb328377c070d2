"""A finished release together with its true counts, after checks that they belong together; confidential."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from das.errors import Problem, UsageError
from das.evaluation.areas import areas_of, compare_areas
from das.evaluation.places import Places, stated_intervals, totals_of
from das.evaluation.truth import Truth, compare_counts, read_truth
from das.exact import digest_of_input
from das.plan.load import load
from das.plan.plan import Plan
from das.schema.query import parse_query
from das.storage.files import commitment
from das.storage.hardening import harden
from das.storage.layout import Layout
from das.storage.staging import committed
from geography import Areas, Spine

__all__ = ["Opened", "open_release"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Opened:
    """Plan, geography and true counts of a release, beside where its published counts lie."""

    layout: Layout
    plan: Plan
    spine: Spine
    truth: Truth
    areas: Mapping[str, Areas]

    def places(self) -> Iterator[Places]:
        """Give the totals of every level and of every kind of area."""
        plan, spine, release = self.plan, self.spine, self.layout.release
        total = parse_query(plan.schema, "total")
        noise = {m.level: m.std_dev for m in plan.measurements if m.query.name == "total"}
        for compared in compare_counts(plan, spine, self.truth, release, [total]):
            level = compared.level
            shown = spine.real(level)
            estimate, deviation = (each[shown] for each in stated_intervals(plan, spine, release, level))
            sides = totals_of(compared, spine.geocodes(level), shown)
            yield Places(**sides, on_spine=True, estimate=estimate, deviation=deviation, noise_std_dev=noise.get(level))
        for compared in compare_areas(plan, spine, self.truth, release, self.areas, [total]):
            codes = self.areas[compared.level].codes
            unknown = np.full(len(codes), np.nan)
            sides = totals_of(compared, codes)
            yield Places(**sides, on_spine=False, estimate=unknown, deviation=unknown, noise_std_dev=None)


def open_release(folder: Path) -> Opened:
    """Open a finished release with its confidential side.

    Raises
    ------
    UsageError
        The folder holds no finished release; its confidential side is not there; or that is of another release, which
        the salted commitment shows that the release published of its input.
    """
    harden()
    layout = Layout(folder)
    release, histograms = layout.release, layout.confidential.histograms
    if not release.manifest.exists():
        raise UsageError(Problem(str(folder), "holds no finished release", "run `das run` to the end"))
    tabulated = committed(histograms)
    if tabulated is None:
        remedy = "run it where confidential/histograms of this release lies"
        raise UsageError(Problem(str(folder), "evaluation needs the confidential side, and it is not here", remedy))
    plan = load(release.config)
    spine = Spine.load(release.facts / "spine.parquet")
    published = json.loads(release.manifest.read_bytes())["inputs"]
    salt = layout.confidential.salt
    same = Spine.load(histograms / "spine.parquet") == spine
    if same and published and salt.exists():
        now = commitment(digest_of_input(tabulated["inputs"]), salt.read_bytes())
        same = now == published[0]["sha256_salted"]
    if not same:
        reason = "holds the true counts of another release: they are not those that this release was made from"
        raise UsageError(Problem(str(histograms), reason, "bring the confidential folder of the same run"))
    return Opened(
        layout=layout, plan=plan, spine=spine, truth=read_truth(plan, histograms), areas=areas_of(plan, spine, release)
    )
