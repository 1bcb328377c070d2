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


@click.command("tune")
@config_file
@click.option("--targets", type=readable, required=True, help="What accuracy is wanted (TOML).")
@click.option("--out", type=click.Path(path_type=Path), help="Write the tuned config, which `das plan` loads.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the trade-off curves as a page.")
@click.option(
    "--generated", "data", flag_value="generated", default="generated", help="Try on generated people.  [default]"
)
@click.option(
    "--public", "data", flag_value="public", help="Try on the config's own data, which it declares to be public."
)
@click.option("--margins", type=readable, help="Public totals and marginals of the generated people (CSV).")
@click.option("--seed", type=click.IntRange(min=0), default=2020, show_default=True, help="Of people and noise.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Simulations of each plan.")
@click.option("--leaves", type=click.IntRange(min=1), help="At most so many leaves are simulated.")
@as_json
def tune_(
    config: Path,
    targets: Path,
    out: Path | None,
    html: Path | None,
    data: str,
    margins: Path | None,
    seed: int,
    runs: int,
    leaves: int | None,
    as_json: bool,
) -> None:
    """Find the shares that meet accuracy targets with the least budget; confidential data are never read."""
    from das.evaluation.country import country_of, generate_country
    from das.evaluation.tuning import read_targets, tune
    from das.evaluation.tuning.page import render_tuned
    from das.evaluation.tuning.text import tuned_config, tuned_json, tuned_text, where_of
    from das.report.progress import progress_on_stderr

    plan = load_plan(config)
    wanted = read_targets(targets, plan)
    country = country_of(plan) if data == "public" else generate_country(plan, seed, leaves, margins)
    with progress_on_stderr("simulations") as progress:
        found = tune(plan, wanted, country, seed=seed, runs=runs, progress=progress)
    where, texts = where_of(found, data, runs, margins), dict[Path, str]()
    if out is not None:
        texts[out] = tuned_config(found.tuned.plan, out)
    if html is not None:
        texts[html] = render_tuned(found, where)
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print_json(tuned_json(found, where)) if as_json else click.echo(tuned_text(found, where, list(texts)))


COMMANDS: tuple[click.Command, ...] = (generate_, tune_)
