"""Commands that read confidential rows once and release an estimate: `udp`, `sample-aggregate`, `density`.

They are verbs of the group ``das infer``, which adds what `METHODS` lists.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from das.commands.shared import as_json, load_plan, print_json, testing_key, unprotected
from das.errors import Problem, UsageError

if TYPE_CHECKING:
    from das.storage.single_release import Budget, Charge

__all__ = ["METHODS"]

Command = Callable[..., None]

_CHARGE = (
    click.option("--ledger", type=click.Path(path_type=Path), help="The ledger's file; begun if it is not there."),
    click.option("--dataset", default="", help="The name of the data set in the ledger."),
    click.option("--total", help="All that may ever be spent on the data set; the first release fixes it."),
    click.option(
        "--config", type=click.Path(path_type=Path), help="Take ledger, data set, total and neighbours from a config."
    ),
    click.option("--rho", help="The budget as rho (zCDP), for example 1/10."),
    click.option("--epsilon", help="The budget as epsilon (pure differential privacy), for example 1/2."),
    click.option(
        "--neighbours",
        type=click.Choice(["replace", "add-remove"]),
        help="What is protected: one row replaced, or one there or not.  [default: replace]",
    ),
    click.option("--rows", type=click.IntRange(min=1), help="The public number of rows, for add-remove."),
    click.option(
        "--data",
        type=click.Choice(["confidential", "public", "generated"]),
        help="What the rows are; --testing-key is for the latter two.  [default: confidential]",
    ),
    testing_key,
    unprotected,
    click.option("--confidence", type=float, default=0.95, show_default=True),
    as_json,
)
_PARTS = (
    click.option(
        "--statistic",
        required=True,
        help="mean, median, proportion, ols (the first column on the others; slope of the second), or MODULE:FUNCTION.",
    ),
    click.option(
        "--bounds", nargs=2, multiple=True, required=True, metavar="LOWER UPPER", help="Of the estimate; public."
    ),
    click.option("--parts", type=int, required=True, help="How many disjoint parts the rows are split into."),
    click.option(
        "--on-failure",
        type=click.Choice(["substitute", "refuse"]),
        default="substitute",
        show_default=True,
        help="If the statistic fails on a part: take the midpoint of the bounds, or spend nothing and stop.",
    ),
    click.option("--workers", type=click.IntRange(min=0), default=0, help="Processes.  [default: one for each core]"),
)
_FILE = click.argument("file", type=click.Path(path_type=Path))
_COLUMN = click.option("--column", "columns", multiple=True, required=True, help="Of numbers; may be repeated.")


def _with(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command("udp")
@_FILE
@_COLUMN
@_with(*_PARTS)
@click.option("--bootstraps", type=int, default=50, show_default=True, help="Weightings of each part.")
@click.option("--share", default="1/4", show_default=True, help="Of the budget, for the share of clipped parts.")
@_with(*_CHARGE)
def udp_(file: Path, columns: tuple[str, ...], bootstraps: int, share: str, as_json: bool, **given: Any) -> None:
    """An estimate from confidential rows, corrected for clipping, with a standard error; charged to the ledger."""
    from das.inference.confidential.udp import udp

    charge, budget = _charge(file, given)
    if len(given["bounds"]) != 1:
        raise UsageError(Problem("--bounds", "is given more than once", "UDP releases one number"))
    part = _fraction("--share", share)
    with _progress() as progress:
        found = udp(
            _rows(file, columns),
            _statistic(given),
            given["bounds"][0],
            given["parts"],
            bootstraps,
            budget,
            charge=charge,
            share=part,
            options=_part_options(given),
            confidence=given["confidence"],
            progress=progress,
        )
    if as_json:
        print_json(found.to_json())
        return
    low, high = ("not known" if each is None else f"{each:.1%}" for each in (found.alpha_low, found.alpha_high))
    lines = [_interval_line(found.estimate, found.ci, found.se, given)]
    lines += [f"clipped      {low} of parts below, {high} above the bounds; clipped mean {found.uncorrected:.6g}"]
    lines += [] if found.feasible else [f"not corrected: {found.reason}; the standard error is an upper bound"]
    click.echo("\n".join([*lines, *_privacy_lines(found.privacy)]))


@click.command("sample-aggregate")
@_FILE
@_COLUMN
@_with(*_PARTS)
@click.option("--jackknife", is_flag=True, help="Remove the leading bias from each part (private maximum likelihood).")
@click.option("--spread-share", default="1/4", show_default=True, help="Of the budget, for the variance between parts.")
@_with(*_CHARGE)
def sample_aggregate_(
    file: Path, columns: tuple[str, ...], jackknife: bool, spread_share: str, as_json: bool, **given: Any
) -> None:
    """The noisy mean of clipped estimates from disjoint parts of confidential rows; charged to the ledger."""
    from das.inference.confidential.sample_aggregate import sample_aggregate

    charge, budget = _charge(file, given)
    part = _fraction("--spread-share", spread_share)
    with _progress() as progress:
        found = sample_aggregate(
            _rows(file, columns),
            _statistic(given),
            given["bounds"],
            budget,
            options=_part_options(given, bias_correction="jackknife" if jackknife else "none"),
            charge=charge,
            spread_share=part,
            confidence=given["confidence"],
            progress=progress,
        )
    if as_json:
        print_json(found.to_json())
        return
    lines = []
    for i, estimate in enumerate(found.estimate):
        lines.append(_interval_line(estimate, found.ci[i], found.se[i], given))
        if found.spread[i] == "bound":
            lines.append("             the variance between parts is not known: its largest possible value is taken")
    click.echo("\n".join([*lines, *_privacy_lines(found.privacy)]))


@click.command("density")
@_FILE
@click.option("--column", required=True, help="A column of numbers.")
@click.option("--bounds", nargs=2, required=True, metavar="LOWER UPPER", help="Of the values; public.")
@click.option(
    "--bins", default="cross-validation", show_default=True, help="cross-validation, rule (n^(1/3)) or a number."
)
@_with(*_CHARGE)
def density_(file: Path, column: str, bounds: tuple[str, str], bins: str, as_json: bool, **given: Any) -> None:
    """A histogram of a confidential column with exact noise, as a density; charged to the ledger."""
    from das.inference.confidential.density import density

    charge, budget = _charge(file, given)
    found = density(
        _rows(file, (column,)),
        bounds,
        budget,
        charge=charge,
        bins=int(bins) if bins.isascii() and bins.isdigit() else bins,  # type: ignore[arg-type]  # checked there
        rows=given["rows"],
        confidence=given["confidence"],
    )
    if as_json:
        print_json(found.to_json())
        return
    lines = [f"{'from':>12} {'to':>12} {'density':>12}  {given['confidence']:.0%} interval"]
    for i, height in enumerate(found.heights):
        low, high = found.ci[i]
        lines.append(f"{found.edges[i]:>12.6g} {found.edges[i + 1]:>12.6g} {height:>12.5g}  {low:.5g} to {high:.5g}")
    click.echo("\n".join([*lines, *_privacy_lines(found.privacy)]))


METHODS: tuple[click.Command, ...] = (udp_, sample_aggregate_, density_)


def _rows(file: Path, columns: tuple[str, ...]) -> Any:
    from das.records.number_columns import number_columns
    from das.storage.hardening import harden

    harden()
    return number_columns(file, list(columns))


def _statistic(given: dict[str, Any]) -> Any:
    from das.inference.confidential.row_statistics import named_statistic

    return named_statistic(given["statistic"])


def _part_options(given: dict[str, Any], **more: Any) -> Any:
    from das.inference.confidential.parts import PartOptions

    names = ("parts", "rows", "on_failure", "workers")
    return PartOptions(**{name: given[name] for name in names}, **more)


def _charge(file: Path, given: dict[str, Any]) -> tuple[Charge, Budget]:
    """Return where the release is charged and what it spends, from the options and, where there is one, the config."""
    from das.storage.ledger_access import ledger_path
    from das.storage.single_release import Budget, Charge

    if (given["rho"] is None) == (given["epsilon"] is None):
        raise UsageError(Problem("--rho, --epsilon", "a release spends one of the two", "give one, as a fraction"))
    ledger, dataset, total = given["ledger"], given["dataset"], given["total"]
    neighbours, data = given["neighbours"], given["data"]
    exact = None if total is None else _fraction("--total", total)
    if given["config"] is not None:
        plan = load_plan(given["config"])
        ledger, dataset = ledger or ledger_path(plan), dataset or plan.settings.input.dataset
        exact = plan.dataset_budget if exact is None else exact
        neighbours, data = neighbours or plan.settings.privacy.neighbours, data or plan.settings.input.data
    framework, amount = ("zcdp", given["rho"]) if given["epsilon"] is None else ("pure", given["epsilon"])
    charge = Charge(
        ledger=ledger,
        dataset=dataset,
        total=exact,
        files=(file,),
        testing_key=given["testing_key"],
        data=data or "confidential",
        unprotected=given["unprotected"],
    )
    return charge, Budget(framework, amount, neighbours or "replace")


def _fraction(option: str, text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise UsageError(Problem(f"{option} {text}", "is not a fraction", "write for example 1/4")) from None


@contextmanager
def _progress() -> Iterator[Any]:
    """A bar on a terminal; nothing in a log."""
    from das.report.progress import progress_on_stderr

    if sys.stderr.isatty():
        with progress_on_stderr() as progress:
            yield progress
    else:
        yield None


def _interval_line(value: float, ci: tuple[float, float], se: float, given: dict[str, Any]) -> str:
    interval = f"{given['confidence']:.0%} interval {ci[0]:.6g} to {ci[1]:.6g}"
    return f"estimate     {value:.6g}  ({interval}, standard error {se:.3g})"


def _privacy_lines(privacy: dict[str, Any]) -> list[str]:
    parameter = "rho" if "rho" in privacy else "epsilon"
    at = f", epsilon {privacy['epsilon_upper']} at delta 1e-10" if "epsilon_upper" in privacy else ""
    relation = {"replace": "one row replaced", "add-remove": "one row there or not"}[privacy["neighbours"]]
    charged = f"charged to data set {privacy['dataset']!r} as run {privacy['run_id'][:10]}"
    if "testing" in privacy:
        charged = f"not charged; {privacy['status']}"
    return [f"privacy      {parameter} {privacy[parameter]}{at} ({relation}); {charged}"]
