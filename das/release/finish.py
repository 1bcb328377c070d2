"""The last step of a release: its config, its statement, its report, and the manifest that makes it complete."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from das.accounting.agreement import refuse_disagreement
from das.errors import BudgetError, InfeasibleError, Problem, UsageError
from das.exact import digest_of
from das.plan.for_accountant import hierarchical_plan
from das.plan.load import load, to_toml
from das.plan.plan import Plan
from das.promise.account import account
from das.promise.statement import statement_of
from das.release.audit import known_cells, measured_events, vacuity_of
from das.release.codebook import data_package
from das.release.conformance import conformance_problems
from das.release.crossing import adjacency_of_facts
from das.release.manifest import files_of, verify_release, versions
from das.release.views import view_script
from das.report.privacy import render_privacy
from das.storage.files import json_bytes, sha256_file, unfinished, write_atomically
from das.storage.layout import ReleaseFolder
from das.storage.run_identity import RunRecord
from das.storage.staging import committed, verify
from das.storage.testing_key import UNPROTECTED
from geography import Spine

__all__ = ["is_finished", "rewrite_report", "write_statement"]

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


def write_statement(
    plan: Plan, release: ReleaseFolder, run: RunRecord, *, public_files: Sequence[Path], wall: Mapping[str, Any]
) -> None:
    """Write config, codebook, views, ``privacy.json``, ``privacy.html`` and, last, ``manifest.json``.

    Parameters
    ----------
    plan, release, run
        What was planned, where it lies, and what the ledger says of it.
    public_files : sequence of Path
        The public files that were read: :func:`das.records.read.public_files`.
    wall : mapping
        What kept the stages after the mechanism from the confidential side.

    Raises
    ------
    BudgetError
        The plan's account and the ledger's differ as rationals; nothing is then called a release.
    """
    release.manifest.unlink(missing_ok=True)
    named = (release.config, release.codebook, release.views, release.statement, release.report, release.manifest)
    for path in named:
        for left in unfinished(path):
            left.unlink()
    stages = [release.facts, release.counts, release.tables, release.microdata]
    if plan.mechanism_stage.measures:
        stages.append(release.measurements)
        if plan.settings.estimate.information == "full":
            stages.append(release.estimates)
    changed = [problem for folder in stages for problem in verify(folder)]
    if changed:
        raise UsageError(changed)
    facts = committed(release.facts)
    if facts is None or committed(release.tables) is None:
        raise UsageError(Problem(str(release.path), "is not complete", "run `das run` to the end"))
    facts_digest = digest_of(facts["files"])
    spine = Spine.load(release.facts / "spine.parquet")
    whole = hierarchical_plan(plan, spine)
    refuse_disagreement(whole.events, measured_events(plan, release))
    statement = statement_of(
        plan,
        account(plan, spine, known_adjacency=adjacency_of_facts(plan, whole, spine, release)),
        facts_digest=facts_digest,
        charged=run.charged,
        seeded=run.seeded,
    )
    if run.unprotected:
        statement["unprotected"] = UNPROTECTED
    for fact in statement["invariants"]:
        # A branch that skips the level is published there all the same, under the name of the place that skips it.
        fact["placeholders"] = int((~spine.real(fact["level"])).sum())
    found = vacuity_of(plan, whole, spine, release)
    statement |= found | {"vacuous": statement["vacuous"] or found["vacuous"]}
    statement["wall"] = dict(wall)
    known = known_cells(plan, whole, spine, release)
    statement |= {
        "known_cells": known,
        "pinned_cells": known["empty"] + known["exact"],
        "emptied_cells": known["empty"],
    }
    if not statement["ledger_agrees"]:
        raise BudgetError(
            Problem("ledger", f"charged {run.charged}, but the plan spends {plan.budget}", "do not publish this run")
        )
    broken = list(conformance_problems(plan, release))
    if broken:
        raise InfeasibleError(broken)
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
    content["outputs"] = files_of(release)
    write_atomically(release.manifest, json_bytes(content), mode=PUBLIC_FILE)


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
