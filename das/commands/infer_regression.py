"""`das infer regression`: regression on noisy columns of a release or a CSV file."""

from __future__ import annotations

from pathlib import Path

import click

from das.commands.shared import as_json, print_json

__all__ = ["METHODS"]


@click.command("regression")
@click.argument("source", required=False, type=click.Path(path_type=Path, exists=True), metavar="[DIR|CSV]")
@click.option("--response", help="What is explained: labels such as 'sex=f & age=65+', or a CSV column.")
@click.option("--on", "regressors", multiple=True, help="What explains it; give it once for each regressor.")
@click.option("--level", help="The geolevel whose geounits are the rows (of a release).")
@click.option("--noise", "noises", multiple=True, metavar="COLUMN=MECHANISM:PARAMETER", help="Noise of a CSV column.")
@click.option("--likelihood", is_flag=True, help="Also by exact likelihood, for one regressor.")
@click.option("--confidence", type=click.FloatRange(0.5, 0.999), default=0.95, show_default=True)
@click.option("--page", type=click.Path(path_type=Path), help="Write Gong's example as a page with confidence regions.")
@as_json
def regression_(
    source: Path | None,
    response: str | None,
    regressors: tuple[str, ...],
    level: str | None,
    noises: tuple[str, ...],
    likelihood: bool,
    confidence: float,
    page: Path | None,
    as_json: bool,
) -> None:
    """Regress noisy counts on noisy counts: naively, and with the noise taken off.

    From the measurements of a release (DIR), or from a CSV file of measurements with their noise.
    """
    from das.errors import Problem, UsageError
    from das.inference.regression.fit import regress_csv, regress_release, regression_text

    if page is not None:
        from das.inference.regression.page import write_page

        write_page(page)
        click.echo(f"wrote {page}", err=True)
        if source is None:
            return
    if source is None or response is None or not regressors:
        raise UsageError(Problem("regression", "needs a release or file, --response and --on", "see --help"))
    if source.is_dir():
        if noises:
            raise UsageError(Problem("--noise", "belongs to a CSV file", "a release states its own noise"))
        if level is None:
            raise UsageError(Problem("--level", "is missing", "name the geolevel whose geounits are the rows"))
        found = regress_release(
            source, level=level, response=response, on=regressors, likelihood=likelihood, confidence=confidence
        )
    else:
        found = regress_csv(
            source, response=response, on=regressors, noises=noises, likelihood=likelihood, confidence=confidence
        )
    print_json(found) if as_json else click.echo(regression_text(found))


METHODS: tuple[click.Command, ...] = (regression_,)
