"""On whom a simulation runs: generated people by default, a config's own data only where somebody says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from das.errors import Problem, UsageError
from das.evaluation.country import generate_country, whole_country_fits, with_generated
from das.plan.plan import Plan
from das.storage.files import make_private

__all__ = ["people_of"]

CONFIDENTIAL = (
    "CONFIDENTIAL: computed from confidential data without any protection, as confidential as the data; it must not be "
    "published, and a plan that was chosen by it depends on the data"
)


def people_of(
    plans: Mapping[str, Plan], data: str, home: Path, *, seed: int, margins: Path | None
) -> tuple[dict[str, Plan], str]:
    """Return plans that read the chosen people, and whose they are, in words.

    Parameters
    ----------
    plans : Mapping
        Name to plan.
    data : {"generated", "public", "confidential"}
        Generated people need no file of the config but its geography and bounds. ``"public"`` takes the config's own
        data if it declares them public or generated; ``"confidential"`` takes them whatever they are.
    home : Path
        Where the generated people are written.
    seed, margins
        Of the generated people.
    """
    if data == "generated":
        home.mkdir(parents=True, exist_ok=True)
        make_private(home)
        made, first = {}, next(iter(plans.values()))
        country = generate_country(first, seed, whole_country_fits(first), margins)
        for number, (name, plan) in enumerate(plans.items()):
            if plan.schema != first.schema or plan.levels != first.levels:
                reason = f"has another schema or geography than {next(iter(plans))!r}"
                raise UsageError(Problem(f"plan {name!r}", reason, "compare plans that differ in strategy"))
            made[name] = with_generated(plan, country, home / f"people-{number}.parquet")
        people = f"{int(country.cells.sum()):,} generated people, seed {seed}"
        return made, f"{people}, about nobody; no record was read"
    if margins is not None:
        raise UsageError(Problem("--margins", "are for generated people", f"leave out --{data} or --margins"))
    for name, plan in plans.items():
        if data == "public" and plan.settings.input.data == "confidential":
            reason = "its data are confidential: it does not declare them public or generated"
            remedy = "leave --public out to generate people, or say --confidential and keep the result confidential"
            raise UsageError(Problem(f"plan {name!r}", reason, remedy))
    kinds = {plan.settings.input.data for plan in plans.values()}
    if "confidential" in kinds:
        return dict(plans), CONFIDENTIAL
    return dict(plans), f"the data are {' and '.join(sorted(kinds))}, as the config declares"
