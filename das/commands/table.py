"""The command about one contingency table: `table`, and `table plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from das.commands.shared import as_json, print_json, testing_key, unprotected

__all__ = ["COMMANDS"]


@click.command("table")
@click.argument("words", nargs=-1, required=True, metavar="[plan] CONFIG")
@click.option("--out", type=click.Path(path_type=Path), help="The folder of the release; not with `plan`.")
@testing_key
@unprotected
@as_json
def table_(words: tuple[str, ...], out: Path | None, as_json: bool, **noise: Any) -> None:
    """Release one contingency table under Semi-DP, charged once to the ledger; its published totals hold exactly.

    `das table plan CONFIG` compares the mechanisms (gaussian, k-norm, conditioning, independent noise) at one promise,
    recommends one and spends nothing. docs/table.md says what a config holds.
    """
    is_plan = len(words) == 2 and words[0] == "plan"
    if len(words) > 1 and not is_plan:
        raise click.UsageError("write `das table CONFIG --out DIR` or `das table plan CONFIG`")
    config = Path(words[-1])
    from das.storage.hardening import harden

    harden()  # the plan reads the file as well, for its published totals
    if is_plan:
        from das.table_release.plan import plan_table, plan_text

        if out is not None:
            raise click.UsageError("`das table plan` writes no files: leave --out out")
        compared = plan_table(config)
        print_json(compared) if as_json else click.echo(plan_text(compared))
        return
    if out is None:
        raise click.UsageError("name the folder of the release with --out, or write `das table plan CONFIG`")
    from das.table_release.release import release_table

    found = release_table(config, out, **noise)
    if as_json:
        print_json(found)
        return
    click.echo(f"{out / 'release'}: table.csv, table.parquet, facts.json, privacy.json, privacy.html, manifest.json")
    for each in found["effective"]:
        at = f" at delta {each['delta']:.1e}" if each["delta"] else ""
        click.echo(f"{each['policy']}, a(t) = {each['a']}: epsilon {each['epsilon']}{at}, {each['status']}")
    click.echo(f"promise: {found['promise']}, {found['condition']}; {found['status']}")


COMMANDS: tuple[click.Command, ...] = (table_,)
