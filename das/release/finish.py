"""The last step of a release: its config, its statement, its report, and the manifest that makes it complete."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from das.accounting.agreement import refuse_disagreement
from das.accounting.events import NotSupported
from das.accounting.hierarchy import HierarchicalPlan, finest_invariant
from das.accounting.vacuity import NestedTotals
from das.errors import BudgetError, InfeasibleError, Problem, UsageError
from das.exact import digest_of
from das.plan.load import load, to_toml
from das.plan.plan import Plan
from das.promise.account import account
from das.promise.statement import statement_of
from das.release.audit import KnownCells, events_of
from das.release.codebook import data_package
from das.release.crossing import adjacency_of_facts
from das.release.manifest import Entry, files_of, verify_release, versions
from das.release.published_shards import PublishedShards
from das.release.verification import Verified, stage_folders
from das.release.views import view_script
from das.report.privacy import render_privacy
from das.storage.files import json_bytes, sha256_file, unfinished, write_atomically
from das.storage.layout import ReleaseFolder
from das.storage.run_identity import RunRecord
from das.storage.staging import committed, verify
from das.storage.testing_key import UNPROTECTED

__all__ = ["begin_statement", "is_finished", "require_as_committed", "rewrite_report", "write_statement"]

PUBLIC_FILE = 0o644


def is_finished(plan: Plan, release: ReleaseFolder) -> bool:
    """Whether the release is complete, as its manifest says and as this config asks; then nothing is to be done.

    Raises
    ------
    UsageError
        A file is not what the manifest says.
    """
    if not release.manifest.exists():
        return False
    problems = verify_release(release)
    if problems:
        raise UsageError(problems)
    return release.config.read_bytes() == to_toml(plan.settings).encode()


def begin_statement(release: ReleaseFolder) -> None:
    """Take back the manifest: until :func:`write_statement` has ended, the folder is not a release."""
    release.manifest.unlink(missing_ok=True)
    named = (release.config, release.codebook, release.views, release.statement, release.report, release.manifest)
    for path in named:
        for left in unfinished(path):
            left.unlink()


def require_as_committed(plan: Plan, release: ReleaseFolder, files: Mapping[str, Entry]) -> None:
    """Refuse a release of which a file is not what its stage made durable; ``files`` were hashed just now."""
    changed = []
    for folder in stage_folders(plan, release):
        inside = f"{folder.name}/"
        known = {name.removeprefix(inside): entry["sha256"] for name, entry in files.items() if name.startswith(inside)}
        changed += verify(folder, known)
    if changed:
        raise UsageError(changed)
    if committed(release.facts) is None or committed(release.tables) is None:
        raise UsageError(Problem(str(release.path), "is not complete", "run `das run` to the end"))


def write_statement(
    published: PublishedShards,
    run: RunRecord,
    *,
    verified: Verified,
    files: Mapping[str, Entry],
    public_files: Sequence[Path],
    wall: Mapping[str, Any],
) -> None:
    """Write config, codebook, views, ``privacy.json``, ``privacy.html`` and, last, ``manifest.json``.

    Parameters
    ----------
    published, run
        What was planned, where it lies, and what the ledger says of it.
    verified : Verified
        What reading all shards has shown.
    files : mapping
        The files of the stages, hashed: :func:`require_as_committed` has found them unchanged.
    public_files : sequence of Path
        The public files that were read: :func:`das.records.read.public_files`.
    wall : mapping
        What kept the stages after the mechanism from the confidential side.

    Raises
    ------
    BudgetError
        The plan's account and the ledger's differ as rationals; nothing is then called a release.
    """
    plan, release, spine = published.plan, published.release, published.spine
    facts_digest = digest_of((committed(release.facts) or {})["files"])
    refuse_disagreement(published.whole.events, events_of(verified.stated))
    statement = statement_of(
        plan,
        account(plan, spine, known_adjacency=adjacency_of_facts(published, crossed=verified.crossed)),
        facts_digest=facts_digest,
        charged=run.charged,
        seeded=run.seeded,
    )
    if run.unprotected:
        statement["unprotected"] = UNPROTECTED
    for fact in statement["invariants"]:
        # A branch that skips the level is published there all the same, under the name of the place that skips it.
        fact["placeholders"] = int((~spine.real(fact["level"])).sum())
    found = _vacuity(published.whole, verified.classes)
    statement |= found | {"vacuous": statement["vacuous"] or found["vacuous"]}
    statement["wall"] = dict(wall)
    known = _known_cells(published, verified.known)
    statement |= {
        "known_cells": known,
        "pinned_cells": known["empty"] + known["exact"],
        "emptied_cells": known["empty"],
    }
    if not statement["ledger_agrees"]:
        raise BudgetError(
            Problem("ledger", f"charged {run.charged}, but the plan spends {plan.budget}", "do not publish this run")
        )
    if verified.problems:
        raise InfeasibleError(verified.problems)
    write_atomically(release.config, to_toml(plan.settings).encode(), mode=PUBLIC_FILE)
    write_atomically(release.codebook, json_bytes(data_package(plan, release)), mode=PUBLIC_FILE)
    write_atomically(release.views, view_script(release).encode(), mode=PUBLIC_FILE)
    write_atomically(release.statement, json_bytes(statement), mode=PUBLIC_FILE)
    content = {
        "release": plan.name,
        "product": plan.settings.release.product,
        "seeded": run.seeded,
        **({"unprotected": UNPROTECTED} if run.unprotected else {}),
        "plan_digest": plan.digest,
        "facts_digest": facts_digest,
        "ledger_entry": run.ledger_entry,
        "conformance": {
            "children_sum_to_parents": True,
            "nonnegative_integers": True,
            "invariants_bounds_and_zeros_hold": True,
            "status": "verified from the published files",
        },
        "versions": versions(),
        "started": run.started,
        # Days: how long a stage took may say something about the records.
        "finished": None if run.seeded else _finished(run.started or ""),
        "inputs": run.inputs,
        "public_inputs": [{"name": path.name, "sha256": sha256_file(path)} for path in public_files],
    }
    html = render_privacy(statement, plan.to_json(), manifest=content)
    write_atomically(release.report, html.encode(), mode=PUBLIC_FILE)
    content["outputs"] = files_of(release, files)
    write_atomically(release.manifest, json_bytes(content), mode=PUBLIC_FILE)


def _vacuity(whole: HierarchicalPlan, classes: NestedTotals) -> dict[str, Any]:
    """Say whether exact facts determine the data, and how many classes of people have nobody to be confused with."""
    finest = finest_invariant(whole)
    if finest is None:
        return {"vacuous": False, "unprotected_secrets": []}
    if isinstance(finest, NotSupported):
        return {"vacuous": False, "unprotected_secrets": ["not supported: " + finest.reason]}
    secrets = [f"being counted in {classes.unprotected} of {classes.classes} classes: nobody is there, publicly"]
    return {
        "vacuous": classes.vacuous,
        "coverage": float(classes.coverage),
        "unprotected_secrets": secrets if classes.unprotected else [],
    }


def _known_cells(published: PublishedShards, known: KnownCells) -> dict[str, int]:
    """Cells of leaves whose counts readers know: ``of`` all, structural zeros, and from the public facts."""
    leaves, possible = published.spine.size(published.plan.levels[-1]), published.plan.schema.possible
    return {
        "of": leaves * possible.size,
        "structural": leaves * int((~possible).sum()),
        "empty": known.empty,
        "exact": known.exact,
    }


def _finished(started: str) -> str:
    """Today; where the clock was set back since the run began, the day on which it began."""
    return max(started, f"{datetime.now(UTC):%Y-%m-%d}")


def rewrite_report(release: ReleaseFolder) -> dict[str, Any]:
    """Render ``privacy.html`` again from the statement, and record its new hash; return the statement."""
    problems = [p for p in verify_release(release) if p.where != release.report.name]
    if problems:
        raise UsageError(problems)
    statement: dict[str, Any] = json.loads(release.statement.read_bytes())
    manifest: dict[str, Any] = json.loads(release.manifest.read_bytes())
    provenance = {key: value for key, value in manifest.items() if key != "outputs"}
    html = render_privacy(statement, load(release.config).to_json(), manifest=provenance)
    write_atomically(release.report, html.encode(), mode=PUBLIC_FILE)
    manifest["outputs"] = files_of(release)
    write_atomically(release.manifest, json_bytes(manifest), mode=PUBLIC_FILE)
    return statement
