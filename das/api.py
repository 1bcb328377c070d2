"""The verbs of the command line as functions on values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from das.errors import Problem, UsageError
from das.plan.load import load
from das.plan.plan import Plan
from das.report.findings import Findings
from das.runner import find_runner
from das.schema.schema import SchemaError
from das.storage.layout import Layout, ReleaseFolder
from geography.problem_list import nearest

if TYPE_CHECKING:
    import pandas as pd

    from das.inference.intervals.answer import Intervals
    from das.inference.intervals.asked import Where
    from das.inference.intervals.estimates import Estimates
    from das.inference.intervals.query import Interval

__all__ = ["Release", "account", "check", "evaluate", "load", "open", "run", "simulate", "tune"]


@dataclass(frozen=True)
class Release:
    """A finished release, read from its public files alone."""

    folder: ReleaseFolder

    def __repr__(self) -> str:
        manifest = self.manifest
        return f"Release {manifest['release']!r} of plan {manifest['plan_digest'][:16]} in {self.folder.path}"

    def _repr_html_(self) -> str:
        from das.release.contents import contents_of

        return f"<pre>{escape(contents_of(self.folder).text())}</pre>"

    @cached_property
    def statement(self) -> dict[str, Any]:
        """The privacy statement, ``privacy.json``."""
        return dict(json.loads(self.folder.statement.read_bytes()))

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest."""
        return dict(json.loads(self.folder.manifest.read_bytes()))

    @cached_property
    def plan(self) -> Plan:
        """The plan, from the resolved config."""
        return load(self.folder.config)

    def measurements(self, level: str) -> pd.DataFrame:
        """Noisy measurements of one level; here as below without the placeholders of branches that skip it."""
        return self._real(self.folder.measurements, level)

    def estimates(self, level: str) -> pd.DataFrame:
        """Best linear unbiased estimates of one level, with the standard deviation of each answer."""
        return self._real(self.folder.estimates, level)

    def counts(self, level: str) -> pd.DataFrame:
        """Protected counts of one level; cells not listed are zero."""
        return self._real(self.folder.counts, level)

    def _real(self, folder: Path, level: str) -> pd.DataFrame:
        frame = _frame(folder / f"{level}.parquet")
        if "geocode" not in frame:
            return frame
        spine = _frame(self.folder.facts / "spine.parquet")
        codes = spine["geocode"][(spine["level"] == level) & spine["real"]]
        return frame[frame["geocode"].isin(codes)].reset_index(drop=True)

    def table(self, place: str, query: str, *, intervals: bool = False) -> pd.DataFrame:
        """Read a published table by level or kind of area and query; ``intervals`` reads the file beside it.

        Codes of places are text and the index.
        """
        from das.release.table_tasks import INTERVALS, TableTask

        try:
            name = TableTask(place, query).file_name(self.plan)
        except SchemaError as error:
            raise UsageError(Problem("query", str(error))) from None
        return _frame(self.folder.tables / f"{name}{INTERVALS if intervals else ''}.parquet").set_index("GEOID")

    def records(self) -> pd.DataFrame:
        """Protected records: one row each, and no row is a person."""
        return _frame(self.folder.microdata / "records.parquet")

    def query(
        self,
        query: str = "total",
        *,
        where: Where | None = None,
        level: str | None = None,
        area: str | Sequence[str] = (),
        areas: str | Path | Mapping[str, str | Path] | None = None,
        minus: str | None = None,
        combine: Sequence[tuple[float, str]] = (),
        over: Where | None = None,
        over_area: str | None = None,
        confidence: float = 0.95,
        interval: Interval = "normal",
    ) -> Intervals:
        """Answer "how wrong is this number?": estimates with intervals for any selection of any places.

        Parameters
        ----------
        query : str
            A marginal of attributes and recodes, for example ``"sex * age"``.
        where : mapping
            Labels to which attributes or recodes are restricted: ``{"sex": "f", "age": ["15-19", "20-24"]}``.
        level : str
            A level or a kind of area: all its places. Without any place, those of ``areas``, or the top level.
        area : str or sequence of str
            Places as ``KIND:CODE``: ``"tract:44007"``, ``"catchment:HC05"``.
        areas : path, or mapping of kinds to paths
            Further areas: files with columns ``area`` and ``geocode``, a row per leaf. The kind of a single file is
            its name without ending.
        minus : str
            A place that is subtracted from each.
        combine : sequence of (float, str)
            Weights and places: their weighted sum.
        over : mapping
            Labels of a denominator (empty for the total): ratios, with Fieller's limits.
        over_area : str
            The denominator's place, if it is another.
        confidence : float
            Probability with which an interval holds the truth.
        interval : str
            ``"normal"``, cut at zero, or ``"feldman-cousins"``.

        Returns
        -------
        Intervals
            Readable as text; ``to_pandas()`` and ``to_arrow()`` give the rows.
        """
        from das.inference.intervals.query import Question, answer

        if areas is not None and not isinstance(areas, Mapping):
            areas = {Path(areas).name.partition(".")[0]: areas}
        question = Question(
            query=query,
            where=where or {},
            level=level,
            area=(area,) if isinstance(area, str) else area,
            areas={kind: Path(path) for kind, path in (areas or {}).items()},
            minus=minus,
            combine=combine,
            over=over,
            over_area=over_area,
            confidence=confidence,
            interval=interval,
        )
        return answer(self._linear, question)

    @cached_property
    def _linear(self) -> Estimates:
        from das.inference.intervals.estimates import Estimates
        from das.inference.intervals.public_files import PublicFiles

        return Estimates(PublicFiles(self.folder))


def run(
    plan: Plan,
    *,
    out: str | Path,
    options: Sequence[str] = (),
    testing_key: str | None = None,
    unprotected: bool = False,
    runner: str = "beam",
) -> Release:
    """Run a release into ``out``, or continue one that was interrupted, and open it.

    Parameters
    ----------
    plan : Plan
        From :func:`das.load`.
    out : path
        A new folder, or one that holds an unfinished run of the same plan.
    options : sequence of str
        Beam's pipeline options, for example ``["--runner=multi-process"]``.
    testing_key : str, optional
        Makes the noise reproducible, and the result a test that can never be called a release. Refused unless the
        config declares its data public or generated.
    unprotected : bool
        Allow a testing key for confidential data. Everything that is written is then private to this user, and says
        that anybody who guesses the key can remove the noise.
    runner : str
        Name of an entry point of the group ``das.runner``.
    """
    find_runner(runner).run(plan, Path(out), options=options, testing_key=testing_key, unprotected=unprotected)
    return open(out)


def open(folder: str | Path) -> Release:
    """Open a finished release by the folder that ``run`` was given, or by its published folder, under any name."""
    published = ReleaseFolder(Path(folder))
    release = published if published.manifest.exists() else Layout(Path(folder)).release
    if not Path(folder).is_dir():
        raise UsageError(Problem(str(folder), "there is no such folder", "name the one that `run` was given"))
    if not release.manifest.exists():
        raise UsageError(Problem(str(folder), "holds no finished release", "run `das run` to the end"))
    return Release(release)


def check(plan: Plan) -> Findings:
    """Check a plan's geography, input, facts and ledger; reads every record and spends nothing.

    Raises
    ------
    ProblemsFound
        With every problem at once.
    """
    from das.checks import check

    found = check(plan)
    return Findings(found, "\n".join(found["lines"]))


def account(*sources: str | Path | Plan | Release) -> Findings:
    """Account plans (or configs, or presets) or finished releases; several, or a folder of them, together.

    Examples
    --------
    >>> found = account("pl94-2020")
    >>> round(found["nominal"]["epsilon"], 3)
    17.144
    """
    from das.promise.accounted import account_sources

    folders = [source.folder.path.parent if isinstance(source, Release) else source for source in sources]
    return account_sources([each if isinstance(each, Plan) else str(each) for each in folders])[2]


def evaluate(
    folder: str | Path, *, beside: Sequence[str | Path] = (), geometries: str | Path | None = None
) -> Findings:
    """Compare a release with the truth; needs the confidential folder, and writes into it alone.

    Parameters
    ----------
    folder : path
        The folder that ``run`` was given.
    beside : sequence of path
        Other releases of the same data, shown beside it.
    geometries : path, optional
        Outlines for the page's map: GeoJSON or GeoParquet.
    """
    from das.evaluation.evaluate import evaluation_text
    from das.evaluation.page import evaluate_and_report

    folders = [Path(each) for each in (folder, *beside)]
    found = evaluate_and_report(folders, geometries=None if geometries is None else Path(geometries))
    return Findings(found, f"{evaluation_text(found)}\n\nPage: {found['page']}")


def simulate(
    plans: Mapping[str, Plan],
    *,
    runs: int = 10,
    seed: int = 2020,
    workers: int | None = None,
    margins: str | Path | None = None,
) -> Findings:
    """Repeat releases of generated people, and measure their errors; reads no confidential record.

    Parameters
    ----------
    plans : mapping of str to Plan
        Plans by the names under which the errors are shown beside each other.
    runs : int
        Releases of each.
    seed : int
        Of the generated people.
    workers : int, optional
        Runs at once; one for each core unless given.
    margins : path, optional
        Public totals and marginals of the generated people (CSV).
    """
    from tempfile import TemporaryDirectory

    from das.evaluation.finished_runs import all_cores
    from das.evaluation.simulate import compare, comparison_text
    from das.evaluation.simulated_people import people_of

    with TemporaryDirectory(prefix="das-simulate-") as temporary:
        workdir = Path(temporary)
        known = None if margins is None else Path(margins)
        generated, words = people_of(dict(plans), "generated", workdir, seed=seed, margins=known)
        found = compare(generated, runs, workdir=workdir, workers=workers or all_cores(), people=words)
    return Findings(found, comparison_text(found))


def tune(
    plan: Plan,
    targets: str | Path,
    *,
    seed: int = 2020,
    runs: int = 5,
    leaves: int | None = None,
    margins: str | Path | None = None,
) -> Findings:
    """Find the shares that meet accuracy targets with the least budget, on generated people.

    Parameters
    ----------
    plan : Plan
        Its schema, geography and facts are kept.
    targets : path
        TOML file that says what accuracy is wanted.
    seed : int
        Of people and noise.
    runs : int
        Simulations of each plan.
    leaves : int, optional
        At most so many leaves are simulated.
    margins : path, optional
        Public totals and marginals of the generated people (CSV); without them, every leaf has about as many.
    """
    from das.evaluation.country import generate_country
    from das.evaluation.tuning import read_targets, tune
    from das.evaluation.tuning.text import tuned_json, tuned_text, where_of

    known = None if margins is None else Path(margins)
    wanted, country = read_targets(Path(targets), plan), generate_country(plan, seed, leaves, known)
    found = tune(plan, wanted, country, seed=seed, runs=runs)
    where = where_of(found, "generated", runs, known)
    return Findings(tuned_json(found, where), tuned_text(found, where, []))


def _frame(path: Path) -> pd.DataFrame:
    import pandas as pd

    if not path.exists():
        places = sorted(each.stem for each in path.parent.glob(f"*{path.suffix}"))
        remedy = nearest(path.stem, places) if places else "its config or its method of estimation writes no such files"
        raise UsageError(Problem(path.stem, f"is not in {path.parent.name}/ of this release", remedy))
    return pd.read_parquet(path)
