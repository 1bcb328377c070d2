"""The command that tests the promise: `audit`."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import click

from das.commands.shared import as_json, load_plan, print_json

__all__ = ["COMMANDS"]

PERCENT = click.FloatRange(min=50, max=100, min_open=True, max_open=True)


@click.command("audit")
@click.argument("subject", metavar="CONFIG|MECHANISM")
@click.option("--sigma2", help="Parameter of discrete-gaussian, such as 4 or 9/2.")
@click.option("--scale", help="Parameter of discrete-laplace.")
@click.option("--delta", help="Delta of discrete-gaussian.  [default: 1/10000000000; a plan has its own]")
@click.option(
    "--runs", type=click.IntRange(min=4), help="Runs on each data set.  [default: 1000; of a mechanism alone: 100000]"
)
@click.option("--confidence", type=PERCENT, default=99.9, show_default=True, help="Of all findings together, percent.")
@click.option("--seed", default="audit", show_default=True, metavar="TEXT", help="Text of the testing keys.")
@click.option("--policy", "policies", multiple=True, help="Audit this policy alone; can be repeated.")
@click.option("--html", "page", type=click.Path(path_type=Path, dir_okay=False), help="Write the result as one page.")
@as_json
def audit_(
    subject: str,
    sigma2: str | None,
    scale: str | None,
    delta: str | None,
    runs: int | None,
    confidence: float,
    seed: str,
    policies: tuple[str, ...],
    page: Path | None,
    as_json: bool,
) -> None:
    """Test whether the program keeps its promise: lower bounds on epsilon beside the claimed upper ones.

    CONFIG is audited on generated data of its shape; its records are not read. MECHANISM is discrete-gaussian or
    discrete-laplace. The exit code is 5 if the promise is not kept.
    """
    from das.errors import Problem, UsageError
    from das.evaluation.privacy_audit import (
        MECHANISM_NAMES,
        audit_mechanism,
        audit_plan,
        audit_text,
        mechanism_named,
        render_audit,
    )
    from das.report.progress import progress_on_stderr
    from das.storage.files import write_atomically

    sure = confidence / 100
    if subject in MECHANISM_NAMES:
        noise = mechanism_named(subject, {"sigma2": sigma2, "scale": scale})
        found = audit_mechanism(
            noise,
            runs=runs or 100_000,
            confidence=sure,
            seed=seed,
            delta=_delta(delta or "1/10000000000"),
            policies=policies,
        )
    else:
        given = [name for name, value in (("sigma2", sigma2), ("scale", scale), ("delta", delta)) if value is not None]
        if given:
            raise UsageError(Problem(f"--{given[0]}", "is an option of a mechanism, and a plan has its own"))
        with progress_on_stderr() as progress:
            found = audit_plan(
                load_plan(Path(subject)),
                runs=runs or 1000,
                confidence=sure,
                seed=seed,
                policies=policies,
                progress=progress,
            )
    if page is not None:
        write_atomically(page, render_audit(found).encode(), mode=0o644)
    print_json(found.to_json()) if as_json else click.echo(audit_text(found))
    found.refuse_violation()


def _delta(text: str) -> Fraction:
    """Read a probability as an exact fraction."""
    from das.errors import Problem, UsageError
    from das.plan.settings import exact_rational

    try:
        delta = exact_rational(text)
    except ValueError as error:
        raise UsageError(Problem("--delta", str(error))) from None
    if not 0 < delta < 1:
        raise UsageError(Problem("--delta", "must lie strictly between 0 and 1", 'write it as "1/10000000000"'))
    return delta


COMMANDS: tuple[click.Command, ...] = (audit_,)
