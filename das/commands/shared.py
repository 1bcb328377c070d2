"""What commands share: options, loading a plan, running stages, and printing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

# Commands import what they need when they run: `das --help` answers at once.
if TYPE_CHECKING:
    from das.plan.plan import Plan

__all__ = [
    "as_json",
    "beam_options",
    "config_file",
    "load_plan",
    "out_folder",
    "print_json",
    "run_folder",
    "run_stages",
    "show_statement",
    "testing_key",
    "trusting",
    "unprotected",
]

as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output, nothing else.")
out_folder = click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder of the run.")
testing_key = click.option("--testing-key", metavar="TEXT", help="Reproducible noise: a test, and never a release.")
unprotected = click.option(
    "--unprotected", is_flag=True, help="Allow --testing-key for confidential data; everything is then written private."
)
trusting = click.option("--trust-network", is_flag=True, help="Use a cluster that is in no private network of das.")
config_file = click.argument("config", type=click.Path(path_type=Path))
run_folder = click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
beam_options = click.argument("beam", nargs=-1, type=click.UNPROCESSED, metavar="[-- BEAM OPTIONS]")


def load_plan(config: Path) -> Plan:
    """Read and validate a config."""
    from das.plan.load import load

    return load(config)


def run_stages(plan: Plan, out: Path, upto: str, beam: Sequence[str], as_json: bool | None, **noise: Any) -> None:
    """Run a release up to a stage, with progress, and show what came of it."""
    from das.checks import already_finished
    from das.compiled import kernels_are_compiled
    from das.report.progress import progress_on_stderr
    from das.runner import STAGES, find_runner
    from das.storage.layout import Layout

    if upto == STAGES[-1] and (finished := already_finished(plan, Layout(out))):
        click.echo(f"das: {finished}", err=True)
    stage = plan.mechanism_stage
    if STAGES.index(upto) >= STAGES.index(stage.calculates) and not kernels_are_compiled(stage.kernels):
        click.echo("compiling numerical kernels for this machine: once, under a minute", err=True)
    with progress_on_stderr() as progress:
        find_runner().run(plan, out, upto=upto, options=beam, progress=progress, **noise)
    if as_json is None:
        following = "run" if upto == "publish" else STAGES[STAGES.index(upto) + 1]
        click.echo(f"{upto}: done; next: das {following}")
        return
    show_statement(json.loads(Layout(out).release.statement.read_bytes()), out, as_json)


def show_statement(statement: dict[str, Any], folder: Path, as_json: bool) -> None:
    """Show a privacy statement, as text or as JSON."""
    from das.report.text import summary

    if as_json:
        print_json(statement)
    else:
        click.echo(summary(statement, folder))


def print_json(content: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))
