"""Commands that make a release: `demo`, `init`, `run`, one stage at a time, `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from das.commands.shared import (
    as_json,
    beam_options,
    config_file,
    load_plan,
    out_folder,
    run_folder,
    run_stages,
    show_statement,
    testing_key,
    trusting,
    unprotected,
)

__all__ = ["COMMANDS"]


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo-release"), show_default=True)
@click.option("--blocks", type=click.IntRange(min=10), default=1000, show_default=True)
@click.option("--people", type=click.IntRange(min=0), default=60_000, show_default=True)
@testing_key
@as_json
@beam_options
def demo(out: Path, blocks: int, people: int, as_json: bool, beam: tuple[str, ...], **noise: Any) -> None:
    """Run a whole release of a generated state; no files are needed."""
    from das.demo.starter import write_demo

    config = write_demo(out, blocks=blocks, people=people)
    run_stages(load_plan(config), out, "report", beam, as_json, **noise)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--like",
    default="small-country",
    show_default=True,
    metavar="NAME",
    help="small-country: three levels, sex and age; pl94: a state with the schema and budget of the 2020 Census; "
    "one-table: a cross-table with public margins, for `das table`.",
)
def init(folder: Path, like: str) -> None:
    """Write a starter: a config that explains itself, with a tiny population and its geography."""
    from das.demo.starter import STARTERS, write_starter

    config = write_starter(folder, like)
    click.echo(f"wrote {config}\nnext: {STARTERS[like].following.format(config=config, out=folder / 'out')}")


@click.command()
@config_file
@out_folder
@testing_key
@unprotected
@trusting
@as_json
@beam_options
def run(config: Path, out: Path, trust_network: bool, as_json: bool, beam: tuple[str, ...], **noise: Any) -> None:
    """Run the release, or continue it after an interruption."""
    run_stages(load_plan(config), out, "report", (*beam, *("--trust-network",) * trust_network), as_json, **noise)


def _stage_command(stage: str, text: str) -> click.Command:
    @click.command(stage, help=text)
    @config_file
    @out_folder
    @testing_key
    @unprotected
    @beam_options
    def command(config: Path, out: Path, beam: tuple[str, ...], **noise: Any) -> None:
        run_stages(load_plan(config), out, stage, beam, None, **noise)

    return command


STAGE_COMMANDS = [
    _stage_command(stage, text)
    for stage, text in (
        ("tabulate", "Count the records of every geounit, into the confidential folder."),
        (
            "measure",
            "Measure with noise (and tabulate first, if that has not happened): this spends the budget.",
        ),
        ("estimate", "Turn measurements into conforming counts (after the stages before it)."),
        ("publish", "Write tables and records (after the stages before it)."),
    )
]


@click.command()
@run_folder
@as_json
def report(folder: Path, as_json: bool) -> None:
    """Write the privacy report of a finished release again, and print the statement."""
    from das.release.finish import rewrite_report
    from das.storage.layout import Layout

    statement = rewrite_report(Layout(folder).release)
    show_statement(statement, folder, as_json)


COMMANDS: tuple[click.Command, ...] = (demo, init, run, *STAGE_COMMANDS, report)
