"""Commands that look: `open` at a release, `doctor` at this machine."""

from __future__ import annotations

from pathlib import Path

import click

from das.commands.shared import as_json, print_json, run_folder

__all__ = ["COMMANDS"]


@click.command("open")
@run_folder
@as_json
def open_(folder: Path, as_json: bool) -> None:
    """Show what a release holds, and how to read it in pandas, R and DuckDB."""
    from das.release.contents import contents_of
    from das.storage.layout import Layout

    contents = contents_of(Layout(folder).release)
    print_json(contents.to_json()) if as_json else click.echo(contents.text())


@click.command()
@as_json
def doctor(as_json: bool) -> None:
    """Show what this machine offers: versions, cores, memory, kernel features, clusters."""
    from das.commands.machine import findings

    found = findings()
    if as_json:
        print_json({finding.name: {"value": finding.value, "means": finding.means} for finding in found})
        return
    width = max(len(finding.name) for finding in found) + 2
    for finding in found:
        click.echo(f"{finding.name:<{width}}{finding.value}" + (f" ({finding.means})" if finding.means else ""))


COMMANDS: tuple[click.Command, ...] = (open_, doctor)
