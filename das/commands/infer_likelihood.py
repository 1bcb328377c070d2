"""`das infer abc` and `das infer mcem`: one released number and a model of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from das.commands.shared import as_json, print_json

__all__ = ["METHODS"]

problem_file = click.argument("problem", type=click.Path(path_type=Path, exists=True, dir_okay=False))
seed_option = click.option("--seed", type=int, default=1, show_default=True, help="Of the simulation.")


@click.command("abc")
@problem_file
@click.option("--draws", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option("--most-simulated", type=click.IntRange(min=1), default=10_000_000, show_default=True)
@click.option(
    "--enumerate", "listed", is_flag=True, help="List true values instead of rejecting: equal in law, faster."
)
@click.option("--out", type=click.Path(path_type=Path), help="Write the draws as Parquet.")
@seed_option
@as_json
def abc_(
    problem: Path, draws: int, most_simulated: int, listed: bool, out: Path | None, seed: int, as_json: bool
) -> None:
    """Draw from the exact posterior of a parameter, given a released number (PROBLEM is a TOML file)."""
    from das.inference.abc import AbcOptions, abc_posterior
    from das.inference.enumeration import enumerated_posterior
    from das.inference.input_file import read_problem
    from das.report.progress import progress_on_stderr

    statistic, model = read_problem(problem)
    if listed:
        found = enumerated_posterior(statistic=statistic, model=model, draws=draws, seed=seed)
    else:
        options = AbcOptions(draws=draws, batch=min(4 * draws + 1000, 100_000), most_simulated=most_simulated)
        with progress_on_stderr("draws") as progress:
            found = abc_posterior(
                statistic=statistic,
                prior=model.prior,
                simulate=model.simulate,
                options=options,
                seed=seed,
                progress=progress,
            )
    if out is not None:
        import pyarrow as pa

        from das.storage.files import write_atomically
        from das.storage.shards import parquet_bytes

        write_atomically(out, parquet_bytes(pa.table({name: found.flat(name) for name in found.draws})))
    kept = found.flat("theta").size
    shown = {"method": "enumeration" if listed else "abc", "draws": kept, "acceptance": found.acceptance}
    _show({**shown, "complete": found.complete, **found.summary()}, as_json)


@click.command("mcem")
@problem_file
@click.option("--iterations", type=click.IntRange(min=5), default=40, show_default=True)
@click.option("--start", type=float, help="Where to begin.  [default: the value itself]")
@seed_option
@as_json
def mcem_(problem: Path, iterations: int, start: float | None, seed: int, as_json: bool) -> None:
    """Maximise the likelihood of a released number by Monte Carlo EM, and without simulation where that is possible."""
    from das.inference.exact_likelihood import exact_interval, maximum_likelihood
    from das.inference.input_file import read_problem
    from das.inference.mcem import McemOptions, complete_data_model, mcem_fit
    from das.report.progress import progress_on_stderr

    statistic, model = read_problem(problem)
    value = float(statistic.value[0])
    low, high = model.parameter_range
    inside = min(max(model.maximise(value), low + 0.05), high - 0.05)
    with progress_on_stderr("steps") as progress:
        fit = mcem_fit(
            statistic=statistic,
            model=complete_data_model(model),
            start=inside if start is None else start,
            options=McemOptions(iterations=iterations),
            seed=seed,
            progress=progress,
        )
    information = float(fit.information[0, 0])
    found: dict[str, Any] = {
        "method": "mcem",
        "estimate": float(fit.estimate[0]),
        "information": information,
        "standard_error": information**-0.5 if information > 0 else None,
        "simulation_error": float(fit.simulation_error[0]),
        "effective_share": fit.effective_share,
        "converged": fit.converged,
    }
    if model.support is not None:
        exact = maximum_likelihood(statistic=statistic, model=model)
        low, high = exact_interval(statistic=statistic, model=model)
        found["exact"] = {
            "estimate": exact.estimate,
            "information": exact.information,
            "lower": low,
            "upper": high,
        }
        if exact.at_an_end:
            reason = "the likelihood is largest at an end of the parameter's range: take the interval"
            found |= {"information": None, "standard_error": None, "note": reason}
            found["exact"]["information"] = None
    _show(found, as_json)


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        if isinstance(value, dict):
            parts = (f"{key} {'-' if number is None else f'{number:.6g}'}" for key, number in value.items())
            click.echo(f"{name:<18}" + "  ".join(parts))
        else:
            shown = f"{value:.6g}" if isinstance(value, float) else "-" if value is None else value
            click.echo(f"{name:<18}{shown}")


METHODS: tuple[click.Command, ...] = (abc_, mcem_)
