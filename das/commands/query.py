"""The command that asks a release: `query`."""

from __future__ import annotations

from pathlib import Path

import click

from das.commands.shared import as_json, print_json, run_folder
from das.errors import Problem, UsageError

__all__ = ["COMMANDS"]


@click.command("query")
@run_folder
@click.option("--query", default="total", show_default=True, help="A marginal, for example 'sex * age'.")
@click.option("--where", multiple=True, metavar="NAME=LABEL,LABEL", help="Only these labels of an attribute or recode.")
@click.option(
    "--level", help="All places of a level or kind of area.  [default: the areas of --areas, or the top level]"
)
@click.option("--area", multiple=True, metavar="KIND:CODE", help="A place, on the spine or off it; give it again.")
@click.option("--areas", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A file of further areas.")
@click.option("--minus", metavar="KIND:CODE", help="Differences from this place.")
@click.option("--combine", multiple=True, metavar="WEIGHT*KIND:CODE", help="A term of a weighted sum; give it again.")
@click.option("--over", multiple=True, metavar="NAME=LABEL|total", help="Ratios to these people of the same place.")
@click.option("--over-area", metavar="KIND:CODE", help="Ratios to another place.")
@click.option("--confidence", type=float, default=0.95, show_default=True)
@click.option("--interval", type=click.Choice(["normal", "feldman-cousins"]), default="normal", show_default=True)
@click.option("--csv", type=click.Path(path_type=Path, dir_okay=False), help="Write the rows to this file.")
@click.option("--parquet", type=click.Path(path_type=Path, dir_okay=False), help="Write the rows to this file.")
@as_json
def query_(
    folder: Path,
    query: str,
    where: tuple[str, ...],
    level: str | None,
    area: tuple[str, ...],
    areas: Path | None,
    minus: str | None,
    combine: tuple[str, ...],
    over: tuple[str, ...],
    over_area: str | None,
    confidence: float,
    interval: str,
    csv: Path | None,
    parquet: Path | None,
    as_json: bool,
) -> None:
    """Estimates with intervals for any selection of any places of a release, from its public files."""
    import das
    from das.inference.intervals.asked import parse_where
    from das.release.tables import csv_bytes
    from das.storage.files import write_atomically
    from das.storage.shards import parquet_bytes

    found = das.open(folder).query(
        query,
        where=parse_where(where),
        level=level,
        area=area,
        areas=areas,
        minus=minus,
        combine=[_term(text) for text in combine],
        over=parse_where(text for text in over if text != "total") if over else None,
        over_area=over_area,
        confidence=confidence,
        interval=interval,  # type: ignore[arg-type]
    )
    if csv is not None:
        write_atomically(csv, csv_bytes(found.table))
    if parquet is not None:
        write_atomically(parquet, parquet_bytes(found.table))
    print_json(found.to_json()) if as_json else click.echo(found.text())


def _term(text: str) -> tuple[float, str]:
    """Read a term such as ``-0.5*tract:44007``."""
    weight, star, place = text.partition("*")
    try:
        return (float(weight), place) if star else (1.0, text)
    except ValueError:
        raise UsageError(Problem("--combine", f"{weight!r} is not a number", "write WEIGHT*KIND:CODE")) from None


COMMANDS: tuple[click.Command, ...] = (query_,)
