"""What is accounted: a plan, a finished release, or a folder of releases."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from das.errors import Problem, ProblemsFound, UsageError
from das.plan.geography import spine_of
from das.plan.load import load
from das.plan.plan import Plan
from das.storage.layout import Layout
from geography import Spine

__all__ = ["Release", "Source", "read_source", "releases_in"]


@dataclass(frozen=True)
class Source:
    """A plan to account, and its spine where one is at hand; of a finished release also its folder and its run."""

    plan: Plan
    spine: Spine | None
    folder: Path | None = None
    run_id: str | None = None
    seeded: bool = False


@dataclass(frozen=True)
class Release:
    """A run in a folder of releases; without a source it is not finished, and the reason says so."""

    folder: Path
    source: Source | None
    reason: str = ""


def read_source(name: str | Plan) -> Source:
    """Read a release folder, a config file, or the name of a preset; a plan is one already."""
    if isinstance(name, Plan):
        return _source_of(name)
    layout = Layout(Path(name))
    if _is_single(layout):
        reason = "is a release of one table or of synthetic records, whose account is its own privacy.json"
        raise UsageError(Problem(name, reason, "`das ledger LEDGER` says what was charged on its data in all"))
    if layout.release.config.exists():
        manifest = json.loads(layout.release.manifest.read_bytes()) if layout.release.manifest.exists() else {}
        return Source(
            load(layout.release.config),
            Spine.load(layout.release.facts / "spine.parquet"),
            layout.root,
            manifest.get("ledger_entry", {}).get("run_id"),
            bool(manifest.get("seeded")),
        )
    if Path(name).is_dir():
        raise UsageError(
            Problem(name, "holds no finished release", "name a release folder, a folder of them, a config or a preset")
        )
    return _source_of(load(name))


def _source_of(plan: Plan) -> Source:
    try:
        return Source(plan, spine_of(plan))
    except ProblemsFound:
        return Source(plan, None)


def _is_single(layout: Layout) -> bool:
    """Whether the folder is one that `das table` or `das synth` wrote."""
    return (layout.release.path / "facts.json").exists() or (layout.root / "synthetic.csv").exists()


def releases_in(folder: Path) -> list[Release]:
    """Find the runs that a folder holds, one in each of its subfolders; empty for any other folder.

    Releases of one table or of synthetic records are none of them.

    A copy of a release is the same release, and is listed once.
    """
    if not folder.is_dir() or Layout(folder).release.config.exists():
        return []
    found: list[Release] = []
    seen: set[bytes] = set()
    for child in sorted(path for path in folder.iterdir() if path.is_dir()):
        layout = Layout(child)
        if _is_single(layout):
            continue  # no theorem joins it to a plan; the ledger's sum, which stands beside, has its charge
        if layout.release.manifest.exists():
            content = layout.release.manifest.read_bytes()
            if content not in seen:
                seen.add(content)
                found.append(Release(child, read_source(str(child))))
        elif layout.run.exists():
            reason = "it is not finished; what it was charged is in the ledger"
            found.append(Release(child, None, reason))
    return found if any(each.source for each in found) else []
