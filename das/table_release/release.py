"""`das table`: one table read, charged, drawn once and written, with its statement, its page and its manifest.

The charge is that of `das.storage.single_release`: the ledger knows it before any noise is drawn, and commits it when
the files are written. Everything public is checked before: config, labels, facts, budget, size of the sampler.
"""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
from numpy.typing import NDArray

from das.errors import InfeasibleError
from das.exact import digest_of
from das.release.manifest import files_of, versions
from das.release.tables import csv_bytes
from das.storage.files import json_bytes, write_atomically
from das.storage.layout import ReleaseFolder
from das.storage.new_folder import new_folder, require_new
from das.storage.single_release import Budget, SingleRelease, single_release
from das.table.nonnegative import nearest_nonnegative
from das.table_release.account import account_of
from das.table_release.data import ConfidentialTable
from das.table_release.mechanisms import MECHANISMS, TableMechanism, promise_of
from das.table_release.page import table_page
from das.table_release.plan import open_table
from das.table_release.settings import TableSettings

__all__ = ["release_table"]


def release_table(
    config: Path, out: Path, *, testing_key: str | None = None, unprotected: bool = False
) -> dict[str, Any]:
    """Release a table and return what ``privacy.json`` says of it.

    Parameters
    ----------
    config : Path
        The config; paths in it are relative to its folder.
    out : Path
        A folder that does not exist, or is empty. ``release/`` in it receives ``table.csv``, ``table.parquet``,
        ``facts.json``, ``config.toml``, ``privacy.json``, ``privacy.html`` and, last, ``manifest.json``.
    testing_key : str, optional
        Reproducible noise: a test, charged nothing.
    unprotected : bool
        Allow a testing key for confidential data.
    """
    started = _now()
    require_new(out)
    settings, table, near = open_table(config)
    promise = promise_of(settings.privacy)
    mechanism = MECHANISMS[settings.mechanism.name](promise, near)
    mechanism.prepare()
    delta = settings.privacy.delta or Fraction(0)
    account = account_of(table, near, mechanism, settings.secret, delta)
    framework = "zcdp" if promise.rho is not None else mechanism.framework
    amount = promise.rho if promise.rho is not None else mechanism.amount
    charge = settings.input.charge(config, testing_key=testing_key, unprotected=unprotected)
    content = {"config": settings.model_dump_json(), "noise": mechanism.noise, "facts": table.facts_digest}
    note = f"table {settings.name} by {mechanism.name}, Semi-DP given its published facts, a(t) = {near.adjacency}"
    folder = ReleaseFolder(out / "release")
    private = charge.is_testing and charge.data == "confidential"
    with (
        new_folder(out, folder.path, private=private),
        single_release(charge, Budget(framework, amount), content, note) as release,
    ):
        release.reserve()
        drawn = mechanism.draw(release.streams, table.counts)
        conforming = _conforming(table, drawn) if settings.mechanism.nonnegative else None
        statement = _statement(settings, mechanism, release, account, table, conforming is not None)
        _write(folder, settings, table, drawn, conforming, statement, mode=0o600 if private else 0o644)
        manifest = {
            "plan_digest": release.digest,
            "facts_digest": table.facts_digest,
            "config_digest": digest_of(content),
            "ledger_entry": release.run_id,
            "versions": versions(),
            "started": started,
            "finished": _now(),
            "outputs": files_of(folder),
        }
        write_atomically(folder.manifest, json_bytes(manifest), mode=0o600 if private else 0o644)
    return statement


def _statement(
    settings: TableSettings,
    mechanism: TableMechanism,
    release: SingleRelease,
    account: dict[str, Any],
    table: ConfidentialTable,
    has_nonnegative: bool,
) -> dict[str, Any]:
    """State the promise: what was charged, about whom it is, what is public, and how the counts are to be read."""
    reading = ["every published total holds exactly in `count`"]
    if mechanism.name == "conditioning":
        reading.append("`count` is drawn given that no count is negative, and is not unbiased where counts are small")
    else:
        reading.append("`count` is the true count plus noise of mean zero, independent of the data; it may be negative")
        if settings.mechanism.nonnegative and not has_nonnegative:
            reading.append("no table without negative counts was found, so there is no column `nonnegative`")
        if has_nonnegative:
            reading.append(
                "`nonnegative` is the nearest table without negative counts that keeps every public fact, computed "
                "from `count` and the facts alone: it costs no privacy, and it is biased where counts are small"
            )
    promise = promise_of(settings.privacy)
    # a pure mechanism has a delta only through its sampler; that of zCDP is where its epsilon is read off
    error = max(each["delta"] for each in account["effective"]) if mechanism.framework == "pure" else 0.0
    stated = {
        "name": settings.name,
        "mechanism": mechanism.name,
        "noise": mechanism.noise,
        "status": "proved",
        "plan_digest": release.digest,
        "facts_digest": table.facts_digest,
        "relation": {"unit": "record", "kind": "replace"},
        "promise": promise.text_with(error),
        "charged": str(release.budget.amount),
        "framework": release.budget.framework,
        "condition": "given the public facts, which hold exactly and are not protected",
        **account,
        "invariants": [{"about": fact.about} for fact in table.published],
        "reading": reading,
        "seeded": release.charge.is_testing,
    }
    if release.charge.is_testing:
        stated["status"] = "a test: the noise can be removed by whoever guesses the testing key"
    return stated | {"dataset": settings.input.dataset, "run_id": release.run_id}


def _write(
    folder: ReleaseFolder,
    settings: TableSettings,
    table: ConfidentialTable,
    drawn: NDArray[np.int64],
    conforming: NDArray[np.int64] | None,
    statement: dict[str, Any],
    *,
    mode: int,
) -> None:
    names, cells = list(table.labels), table.cells
    columns = {name: pa.array([cell[k] for cell in cells], pa.string()) for k, name in enumerate(names)}
    columns["count"] = pa.array(drawn, pa.int64())
    if conforming is not None:
        columns["nonnegative"] = pa.array(conforming, pa.int64())
    made = pa.table(columns)
    sink = pa.BufferOutputStream()
    pq.write_table(made, sink, compression="zstd")
    resolved = settings.model_dump(mode="json", exclude_none=True)
    facts = table.facts_json()
    write_atomically(folder.path / "table.csv", csv_bytes(made), mode=mode)
    write_atomically(folder.path / "table.parquet", sink.getvalue().to_pybytes(), mode=mode)
    write_atomically(folder.path / "facts.json", json_bytes(facts), mode=mode)
    write_atomically(folder.config, tomli_w.dumps(resolved).encode(), mode=mode)
    write_atomically(folder.statement, json_bytes(statement), mode=mode)
    write_atomically(folder.report, table_page(statement, facts).encode(), mode=mode)


def _conforming(table: ConfidentialTable, drawn: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the nearest table without negative counts; None if the solver finds none, for the draw is paid for."""
    try:
        return nearest_nonnegative(table.facts, drawn)
    except InfeasibleError:
        return None


def _now() -> str:
    """The day: how long a release took may say something about the records."""
    return f"{datetime.now(UTC):%Y-%m-%d}"
