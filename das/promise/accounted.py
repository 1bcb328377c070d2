"""The account of whatever a person names: a config, a preset, releases, or a folder of releases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from das.plan.plan import Plan
from das.promise.account import Account
from das.promise.joint import account_releases, joint_account
from das.promise.product import product_of
from das.promise.sources import Source, read_source, releases_in
from das.report.account_text import account_text
from das.report.findings import Findings
from das.storage.ledger_view import charges_beside

__all__ = ["account_sources"]


def account_sources(names: Sequence[str | Plan]) -> tuple[list[Source], Account, Findings]:
    """Account them together, and return them, the account, and what ``das account`` shows of it."""
    found = releases_in(Path(names[0])) if len(names) == 1 and isinstance(names[0], str) else []
    if found:
        read, accounted = account_releases(found)
        runs = {source.run_id for source in read if source.run_id}
        folders = [each.folder for each in found]
        accounted.sections["ledgers"] = charges_beside(folders, read[0].plan.settings.input.dataset, runs)
    else:
        read = [read_source(name) for name in names]
        accounted = joint_account(read)
    product = product_of(read[0].plan) if len(read) == 1 else None
    together = " + ".join(source.plan.name for source in read)
    text = f"{together}\n\n{account_text(accounted.nominal, accounted.sections)}"
    seeded = [source.plan.name for source in read if source.seeded]
    if seeded:
        text = f"TEST RUN ({', '.join(seeded)}): its noise key is known. Nothing below is promised of it.\n\n{text}"
    content = {"nominal": accounted.nominal, **accounted.sections, "test_runs": seeded}
    if product:
        text, content = f"{text}\n{product.text()}", content | {"product": product.to_json()}
    return read, accounted, Findings(content, text)
