"""Commands that look: `open` and `workbook` at a release, `doctor` at this machine."""

from __future__ import annotations

from pathlib import Path

import click

from das.commands.shared import as_json, print_json, run_folder

__all__ = ["COMMANDS"]


@click.command("open")
@run_folder
@click.option("--duckdb", is_flag=True, help="Print a script that makes views of all files in DuckDB.")
@as_json
def open_(folder: Path, duckdb: bool, as_json: bool) -> None:
    """Show what a release holds, and how to read it in pandas, R and DuckDB."""
    from das.release.contents import contents_of
    from das.release.views import view_script
    from das.storage.layout import Layout

    release = Layout(folder).release
    contents = contents_of(release)
    if duckdb:
        click.echo(view_script(release, release.path.absolute()), nl=False)
        return
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


@click.command()
@run_folder
@click.option("--table", multiple=True, metavar="PLACE-QUERY", help="A table, as its file is named; give it again.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The .xlsx file to write.")
def workbook(folder: Path, table: tuple[str, ...], out: Path) -> None:
    """Write tables of a release with their intervals to an Excel workbook; needs the extra `excel`."""
    from das.release.contents import contents_of
    from das.release.workbook import write_workbook
    from das.storage.layout import Layout

    release = Layout(folder).release
    contents_of(release)
    names = write_workbook(release, out, table)
    click.echo(f"{out}: notes, and {len(names)} tables: {', '.join(names)}")


COMMANDS: tuple[click.Command, ...] = (open_, workbook, doctor)
