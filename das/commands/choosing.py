"""Commands that help to choose a plan before there are data: `generate`, `tune`."""

from __future__ import annotations

from pathlib import Path

import click

from das.commands.shared import as_json, config_file, load_plan, print_json

__all__ = ["COMMANDS"]

readable = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("generate")
@config_file
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file of counts to write (Parquet).")
@click.option("--margins", type=readable, help="Public totals and marginals that the people must have (CSV).")
@click.option("--seed", type=click.IntRange(min=0), default=2020, show_default=True)
@as_json
def generate_(config: Path, out: Path, margins: Path | None, seed: int, as_json: bool) -> None:
    """Generate people about nobody for a config's own schema and geography, so that the plan can be tried."""
    from das.errors import Problem, UsageError
    from das.evaluation.country import generate_country, whole_country_fits, with_generated

    plan = load_plan(config)
    if out.suffix != ".parquet":
        raise UsageError(Problem(str(out), "is not named as a Parquet file", "write for example --out people.parquet"))
    if out.exists():
        raise UsageError(Problem(str(out), "is already there", "name another file, or remove it"))
    country = generate_country(plan, seed, whole_country_fits(plan), margins)
    out.parent.mkdir(parents=True, exist_ok=True)
    made = with_generated(plan, country, out).settings.input
    people, leaves = int(country.cells.sum()), len(country.spine.leaves)
    if as_json:
        print_json({"file": str(out), "people": people, "leaves": leaves, "seed": seed, "data": "generated"})
        return
    click.echo(
        f"wrote {out}: {people:,} generated people in {leaves:,} geounits of level {plan.levels[-1]}, seed {seed}"
    )
    names = "" if made.count == "count" else f'\ncount = "{made.count}"'
    click.echo(
        f'to use them:\n\n[input]\ndata = "generated"\nhistograms = "{out}"\ngeocode = "{made.geocode[0]}"{names}'
    )


COMMANDS: tuple[click.Command, ...] = (generate_,)
