"""Commands that measure: `evaluate`, `simulate`, `compare`, `bench`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from das.bench import NAMES
from das.bench import measure as measure_bench
from das.commands.shared import as_json, beam_options, load_plan, print_json, run_folder

__all__ = ["COMMANDS"]


@click.command("evaluate")
@run_folder
@click.option(
    "--beside",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Another release of the same data, shown beside this one; may be given several times.",
)
@click.option(
    "--html", type=click.Path(path_type=Path), help="Where the page goes.  [default: confidential/accuracy.html]"
)
@click.option(
    "--geometries",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Outlines for a map, joined on GEOID: GeoJSON, or GeoParquet (WKB).",
)
@click.option("--publishable", is_flag=True, help="Let others read the page; only for generated or public data.")
@as_json
def evaluate_(
    folder: Path,
    beside: tuple[Path, ...],
    html: Path | None,
    geometries: Path | None,
    publishable: bool,
    as_json: bool,
) -> None:
    """Compare a release with the truth; needs the confidential folder, and writes into it alone unless told otherwise.

    Writes evaluation.json, evaluation.parquet and the page accuracy.html.
    """
    from das.evaluation.evaluate import evaluation_text
    from das.evaluation.page import evaluate_and_report

    found = evaluate_and_report([folder, *beside], html=html, geometries=geometries, publishable=publishable)
    if as_json:
        print_json(found)
        return
    click.echo(evaluation_text(found))
    if found["map"] and geometries:
        click.echo(f"\nMap: {found['map']}")
    click.echo(f"\nPage: {found['page']}")


@click.command("simulate")
@click.argument("configs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--runs", type=click.IntRange(min=1), default=10, show_default=True)
@click.option(
    "--information", multiple=True, type=click.Choice(["full", "level"]), help="Compare these; give it twice."
)
@click.option(
    "--generated", "data", flag_value="generated", default="generated", help="On generated people.  [default]"
)
@click.option("--public", "data", flag_value="public", help="On the config's own data, declared public or generated.")
@click.option(
    "--confidential", "data", flag_value="confidential", help="On confidential data: the result is as confidential."
)
@click.option(
    "--margins", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Of the generated people."
)
@click.option("--seed", type=click.IntRange(min=0), default=2020, show_default=True, help="Of the generated people.")
@click.option("--workers", type=click.IntRange(min=1), help="Runs at once.  [default: one for each core]")
@click.option("--out", type=click.Path(path_type=Path), help="Keep finished runs here: the same command continues.")
@as_json
def simulate_(
    configs: tuple[Path, ...],
    runs: int,
    information: tuple[str, ...],
    data: str,
    margins: Path | None,
    seed: int,
    workers: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Repeat a release and measure its accuracy, on generated people unless told otherwise; configs are compared."""
    from das.evaluation.finished_runs import all_cores
    from das.evaluation.simulate import compare, comparison_text
    from das.evaluation.simulated_people import people_of
    from das.report.progress import progress_on_stderr

    plans = {str(path): load_plan(path) for path in configs}
    with TemporaryDirectory(prefix="das-simulate-") as temporary, progress_on_stderr("runs") as progress:
        workdir = Path(temporary)
        plans, words = people_of(plans, data, out or workdir, seed=seed, margins=margins)
        if information:
            several = [(name, plan, kind) for name, plan in plans.items() for kind in information]
            plans = {f"{name}, {kind}": plan.with_information(kind) for name, plan, kind in several}
        side = workers or all_cores()
        found = compare(plans, runs, workdir=workdir, progress=progress, workers=side, keep=out, people=words)
    found |= {"data": data}
    print_json(found) if as_json else click.echo(comparison_text(found))


@click.command("compare")
@click.argument("source", required=False, type=click.Path(path_type=Path), metavar="[CONFIG|DIR]")
@click.option("--out", type=click.Path(path_type=Path), help="Write the comparison as one page (HTML).")
@click.option("--epsilon", help="The effective epsilon that all are matched to.  [default: the plan's own; without: 1]")
@click.option("--runs", type=click.IntRange(min=2), help="Runs of each contender.  [default: 5; without a config: 300]")
@as_json
@beam_options
def compare_(
    source: Path | None, out: Path | None, epsilon: str | None, runs: int | None, as_json: bool, beam: tuple[str, ...]
) -> None:
    """Compare raw noise, least squares and conditioned noise at the same effective privacy.

    Without an argument on an example table; with a CONFIG on its own data, which it must declare public or generated,
    because nothing protects distances from the truth; with the DIR of a run on that run's data, into its confidential
    folder alone.
    """
    from das.evaluation.compare import compare
    from das.report.progress import progress_on_stderr

    with progress_on_stderr("runs") as progress:
        found, text = compare(source, out=out, epsilon=epsilon, runs=runs, options=beam, progress=progress)
    print_json(found) if as_json else click.echo(text)


@click.command()
@click.argument("name", type=click.Choice(NAMES))
@click.option("--blocks", type=click.IntRange(min=1), help="Leaves that are generated (for `state` and `leaves`).")
@click.option(
    "--counts",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Block counts of a real state (`accuracy`, `matched`, `coverage`): CSV with GEOID, pop_GROUP, vap_GROUP.",
)
@click.option(
    "--share", type=click.FloatRange(0, 1, min_open=True), help="Part of the enumeration districts (for `1940`)."
)
@click.option("--runs", type=click.IntRange(min=1), help="How often each is measured (`accuracy`, `matched`).")
@as_json
@beam_options
def bench(
    name: str,
    blocks: int | None,
    counts: Path | None,
    share: float | None,
    runs: int | None,
    as_json: bool,
    beam: tuple[str, ...],
) -> None:
    """Measure this project against a peer, in one process and one run."""

    def told(row: dict[str, object]) -> None:
        click.echo("  ".join(f"{key} {value}" for key, value in row.items()), err=True)

    found = measure_bench(name, blocks=blocks, counts=counts, share=share, runs=runs, options=beam, finished=told)
    if as_json:
        print_json(found)
        return
    for row in found if isinstance(found, list) else [found]:
        click.echo("  ".join(f"{key} {value}" for key, value in row.items() if key != "details"))


COMMANDS: tuple[click.Command, ...] = (evaluate_, simulate_, compare_, bench)
