"""Synthetic records for every leaf of a release, with columns that the release did not measure.

Two public inputs: the protected counts of a `das run`, and the model of a `das synth`. Each row has the release's own
attributes, so that rows tabulate to its tables exactly, and further columns whose distribution, given the columns that
both share, is the model's. Nothing confidential is read and nothing is charged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from das.accounting.conversion import epsilon_upper
from das.errors import ConfigError, InputError, Problem, UsageError
from das.exact import digest_of, round_up
from das.plan.load import load
from das.plan.plan import Plan
from das.release.microdata import LAYOUTS
from das.schema.counts import ProtectedCounts
from das.storage.counts import read_counts
from das.storage.layout import Layout
from das.storage.new_folder import new_folder, require_new
from das.synthesis.exchange import PlaceGoals, exchanged
from das.synthesis.graphical.model import GraphicalModel
from das.synthesis.graphical.model_file import MODEL_FILE, StoredModel, raked, read_model
from das.synthesis.output import STATEMENT, write_release
from das.synthesis.rows import targets_of
from geography import Spine

__all__ = ["extend_release"]

Codes = NDArray[np.int64]
_SWEEPS = 30


@dataclass(frozen=True, eq=False)
class _Released:
    """The protected counts of the leaves, and what else each of them says of place and labels."""

    plan: Plan
    spine: Spine
    counts: ProtectedCounts

    @property
    def known(self) -> dict[str, tuple[Sequence[str], Codes]]:
        """Labels, and the label of each count, by the name of an attribute, a recode or a level."""
        found: dict[str, tuple[Sequence[str], Codes]] = {}
        for level in self.spine.levels:
            found[level] = self.spine.geocodes(level).tolist(), self.unit(level)[self.counts.unit]
        for name, code in self.plan.schema.labels_of(self.counts.cell).items():
            attribute = self.plan.schema.attribute(name)
            for each in (name, *attribute.recodes):
                partition = attribute.partition(each)
                found[each] = partition.labels, partition.group_of[code]
        return found

    def unit(self, level: str) -> Codes:
        """The unit of each leaf."""
        return np.repeat(np.arange(self.spine.size(level)), np.diff(self.spine.leaf_ranges(level)))


def extend_release(folder: Path, model_folder: Path, out: Path, *, match: Sequence[str] = ()) -> dict[str, Any]:
    """Write synthetic records of a release with the further columns of a model, and return the statement.

    Parameters
    ----------
    folder : Path
        A finished release, the folder that ``das run --out`` was given.
    model_folder : Path
        What ``das synth --out`` was given, with a model file.
    out : Path
        A new folder.
    match : sequence of str
        Columns by which the two are matched; all that both have by default. A column of the model may be an attribute
        of the release, a recode of one, or a level of its geography with geocodes as labels.
    """
    require_new(out)
    released, statement = _read_release(folder)
    stored, source = _read_source(model_folder)
    known = released.known
    matched, added = _columns(stored, known, match)
    codes = {name: _positions(name, stored, *known[name]) for name in matched}
    shape = tuple(len(stored.labels[name]) for name in matched)
    group = np.ravel_multi_index(tuple(codes[name] for name in matched), shape)
    counted = np.bincount(group, weights=released.counts.count, minlength=int(np.prod(shape))).astype(np.int64)
    model = raked(stored, counted.reshape(shape), matched)
    seed = digest_of({"release": statement["plan_digest"], "entry": released.plan.name, "model": source["run_id"]})
    generator = np.random.default_rng(int(seed[:16], 16))
    columns = _spread(released, model, matched, added, group, generator)
    table = _table(released, stored, added, columns)
    stated = _statement(statement, source, matched, added, table.num_rows)
    private = any(each.stat().st_mode & 0o077 == 0 for each in (Layout(folder).release.path, model_folder))
    with new_folder(out, private=private):
        write_release(out, table, stated, private=private)
    return stated


def _read_release(folder: Path) -> tuple[_Released, dict[str, Any]]:
    files = Layout(folder).release
    if not files.manifest.exists():
        raise UsageError(Problem(str(folder), "holds no finished release", "run `das run` to the end"))
    plan = load(files.config)
    spine = Spine.load(files.facts / "spine.parquet")
    level = spine.levels[-1]
    counts = read_counts(spine, level, files.counts / f"{level}.parquet")
    if not counts.count.sum():
        raise InputError(Problem(str(folder), "counts nobody, so there are no records to make"))
    return _Released(plan, spine, counts), json.loads(files.statement.read_bytes())


def _read_source(folder: Path) -> tuple[StoredModel, dict[str, Any]]:
    if not (folder / STATEMENT).is_file():
        reason, remedy = "is not a folder that `das synth` wrote", "give its --out folder with --model"
        raise UsageError(Problem(str(folder), reason, remedy))
    try:
        stated = json.loads((folder / STATEMENT).read_bytes())
        method, _ = str(stated["method"]), stated["run_id"]
    except (ValueError, KeyError, TypeError):
        reason, remedy = "is not the statement of a synthetic file", "give a folder that `das synth` wrote with --model"
        raise InputError(Problem(str(folder / STATEMENT), reason, remedy)) from None
    if not (folder / MODEL_FILE).is_file():
        reason = f"`{method}` writes no model that knows the distribution of some columns given others"
        raise UsageError(Problem(str(folder), reason, "make it with `pairs`, `aim`, `mst` or `bayes-net`"))
    return read_model(folder / MODEL_FILE), stated


def _columns(stored: StoredModel, known: Any, match: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns by which both are matched, in the order of the model, and those that are new."""
    shared = [name for name in stored.labels if name in known]
    added = tuple(name for name in stored.labels if name not in known)
    wrong = [name for name in match if name not in shared]
    if wrong:
        there = f"there are {', '.join(shared)}" if shared else "there is none"
        reason = "is not a column of the model that the release has as attribute, recode or level"
        raise ConfigError([Problem(f"--match {name}", reason, there) for name in wrong])
    if not added:
        raise ConfigError(Problem("model", "has no column that the release does not have", "fit one with more columns"))
    if not shared:
        reason = "shares no column with the release"
        raise ConfigError(Problem("model", reason, "name a column as the attribute, recode or level that it is"))
    return tuple(name for name in shared if not match or name in match), added


def _positions(name: str, stored: StoredModel, labels: Sequence[str], codes: Codes) -> Codes:
    """Return codes as positions in the model's labels."""
    place = {label: position for position, label in enumerate(stored.labels[name])}
    wrong = [label for label in labels if label not in place]
    if wrong:
        reason = f"{wrong[0]!r} of the release is not a label of the model's column"
        more = f" ({len(wrong)} labels are not)" if len(wrong) > 1 else ""
        raise ConfigError(Problem(name, reason + more, "give both the same labels, or leave it out with --match"))
    return np.array([place[label] for label in labels], dtype=np.int64)[codes]


def _spread(
    released: _Released,
    model: GraphicalModel,
    matched: tuple[str, ...],
    added: tuple[str, ...],
    group: Codes,
    generator: np.random.Generator,
) -> Codes:
    """Return the new columns of each record, records in the order of the counts."""
    domain, counts = model.domain, released.counts
    targets = [each for each in targets_of(domain, model.constraints) if set(each) & set(added)]
    rows = model.rows(int(counts.count.sum()), generator, targets)
    shape = domain.shape_of(matched)
    made = np.ravel_multi_index(tuple(rows[:, axis] for axis in domain.axes(matched)), shape)
    wanted = np.repeat(group, counts.count)
    columns = np.empty((len(rows), len(added)), dtype=np.int64)
    # both have the same number of records in each group: the model keeps these counts exactly
    columns[np.argsort(wanted, kind="stable")] = rows[np.argsort(made, kind="stable")][:, list(domain.axes(added))]
    expected = []
    for name in added:
        joint = model.marginal((*matched, name)).reshape(int(np.prod(shape)), -1)
        whole = joint.sum(axis=1, keepdims=True)
        share = np.divide(joint, whole, out=np.zeros_like(joint), where=whole > 0)
        leaves = [
            np.bincount(counts.unit, weights=share[group, label] * counts.count, minlength=len(released.spine.leaves))
            for label in range(joint.shape[1])
        ]
        expected.append(np.stack(leaves, axis=1))
    leaf = np.repeat(counts.unit, counts.count)
    goals = [
        PlaceGoals(released.unit(level)[leaf], tuple(released.spine.tabulate(level, table) for table in expected))
        for level in released.spine.levels
        if released.spine.size(level) > 1
    ]
    return exchanged(columns, wanted, goals, generator, sweeps=_SWEEPS)


def _table(released: _Released, stored: StoredModel, added: tuple[str, ...], columns: Codes) -> pa.Table:
    counts, plan = released.counts, released.plan
    unit, cell = np.repeat(counts.unit, counts.count), np.repeat(counts.cell, counts.count)
    layout = next(layout for layout in LAYOUTS.values() if layout.is_for(plan.schema))
    out = layout.columns(plan, released.spine.leaves, unit, plan.schema.labels_of(cell))
    if taken := [name for name in added if name in out]:
        raise ConfigError(Problem(taken[0], "is a column of the release's records", "rename the model's column"))
    for axis, name in enumerate(added):
        labels = pa.array(stored.labels[name], pa.string())
        out[name] = pa.DictionaryArray.from_arrays(pa.array(columns[:, axis], pa.int32()), labels).dictionary_decode()
    return pa.table(out)


def _statement(
    release: dict[str, Any], source: dict[str, Any], matched: Sequence[str], added: Sequence[str], rows: int
) -> dict[str, Any]:
    """State that nothing is charged, whose promises hold, and what was assumed."""
    is_test = bool(release.get("seeded")) or str(source["status"]) != "proved"
    kind, nominal = release["relation"]["kind"], release["nominal"]
    stated: dict[str, Any] = {
        "name": f"{release['release']} with {', '.join(added)}",
        "method": "from-release",
        "charged": "0",
        "rows": rows,
        "status": "a test: the noise of one of the two can be removed" if is_test else "proved",
        "promise": "a function of the two releases below and of nothing else, so what each promises holds for these "
        "records, and nothing is charged beyond their own two charges; about people who are in both, the two compose",
        "matched": list(matched),
        "added": list(added),
        "assumption": f"given {', '.join(matched)}, the added columns are taken to be independent of all else that the "
        "release says, place included",
        "releases": [
            {key: release.get(key) for key in ("release", "plan_digest", "relation", "nominal", "seeded")},
            {key: source.get(key) for key in ("name", "method", "dataset", "run_id", "neighbours", "charged", "spent")},
        ],
    }
    if nominal.get("rho") and source["spent"]["framework"] == "zcdp" and source["neighbours"] == kind:
        rho, delta = Fraction(nominal["rho"]) + Fraction(source["charged"]), Fraction(str(nominal["delta"]))
        stated["together"] = {
            "rho": str(rho),
            "epsilon_upper": float(round_up(epsilon_upper(rho, delta), 4)),
            "delta": float(delta),
            "condition": "for people who are in both, as if nothing were public",
        }
    return stated
