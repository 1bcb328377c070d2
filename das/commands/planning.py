"""Commands before and between releases: `check`, `plan`, `account`, `ledger`, `presets`."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from das.commands.shared import as_json, config_file, load_plan, print_json
from das.errors import Problem, UsageError

if TYPE_CHECKING:
    from das.plan.plan import Plan

__all__ = ["COMMANDS"]

WIDTH = 110
"""Characters of a line in a paragraph."""


@click.command("check")
@config_file
@as_json
def check_(config: Path, as_json: bool) -> None:
    """Validate config, geography, inputs and feasibility; report every problem; spend nothing."""
    from das.api import check

    found = check(load_plan(config))
    print_json(found.content) if as_json else click.echo(found.text)


@click.command("plan")
@config_file
@click.option("--scale", is_flag=True, help="Project time, memory and cost of a national run instead.")
@click.option("--workers", type=click.IntRange(min=1), help="With --scale: worker processes.  [default: 1]")
@click.option("--blocks", type=click.IntRange(min=10), help="With --scale: leaves of the spine.  [default: 5900000]")
@click.option(
    "--measured",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="With --scale: what `das bench state --json` printed, instead of measuring now; give it twice.",
)
@click.option(
    "--compare-trees",
    is_flag=True,
    help="For the congenial method: simulate other trees and shares on generated people, and recommend one.",
)
@click.option("--html", type=click.Path(path_type=Path), help="Write a page in which budget and shares can be moved.")
@click.option("--seed", type=click.IntRange(min=0), help="With --compare-trees: of people and noise.  [default: 2020]")
@click.option("--leaves", type=click.IntRange(min=1), help="With --compare-trees: at most so many are simulated.")
@as_json
def plan_(
    config: Path,
    scale: bool,
    workers: int | None,
    blocks: int | None,
    measured: tuple[Path, ...],
    compare_trees: bool,
    seed: int | None,
    leaves: int | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Show noise, expected error and cost per geolevel and query; read no record."""
    from das.plan.method_accuracy import accuracy_text
    from das.plan.tree_of_counts import tree_of
    from das.promise.account import account
    from das.promise.product import product_of
    from das.report.account_text import account_text
    from das.report.grids import exact_share_sentence
    from das.report.verdict import verdict_text

    plan = load_plan(config)
    if html is not None:
        from das.evaluation.tuning.planner import render_planner

        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(render_planner(plan), encoding="utf-8")
    if scale:
        from das.bench.forecast import NATION, measure_states, project, read_measured

        runs = [read_measured(path) for path in measured] or measure_states()
        projected = project(plan, runs, blocks=blocks or NATION, workers=workers or 1)
        if as_json:
            print_json(projected.to_json())
        else:
            click.echo(projected.text())
        return
    if workers or blocks or measured:
        given = "--workers" if workers else "--blocks" if blocks else "--measured"
        raise UsageError(Problem(given, "means nothing to `das plan` by itself", "use it with --scale"))
    if not compare_trees and (seed is not None or leaves is not None):
        given = "--leaves" if seed is None else "--seed"
        raise UsageError(Problem(given, "means nothing to `das plan` by itself", "use it with --compare-trees"))
    if compare_trees:
        _compare_trees(plan, 2020 if seed is None else seed, leaves, as_json)
        return
    accounted, product = account(plan), product_of(plan)
    spent_again = exact_share_sentence(plan.to_json(), accounted.sections)
    if as_json:
        found: dict[str, Any] = {"product": product.to_json()} if product else {}
        found |= {"remark": spent_again} if spent_again else {}
        print_json(plan.to_json() | accounted.sections | found)
        return
    joint = f"\n{product.text()}" if product else ""
    if spent_again:
        joint += "\n" + "\n".join(textwrap.wrap(f"remark: {spent_again}", WIDTH, break_on_hyphens=False))
    if plan.mechanism_stage.sampler:
        joint += f"\ncongenial: counts form a tree (laminar): {tree_of(plan).explain()}"
        joint += "\n" + "\n".join(textwrap.wrap(f"accuracy: {accuracy_text()}", WIDTH, break_on_hyphens=False))
    relation = {"unit": plan.settings.privacy.unit, "kind": str(plan.settings.privacy.neighbours)}
    verdict = "\n".join([*verdict_text({"relation": relation, **accounted.sections}), ""])
    table = f"{verdict}\n{account_text(accounted.nominal, accounted.sections)}"
    click.echo(f"{plan.explain()}{joint}\n\n{table}\n\nNothing was read of the records, nothing was spent.")


def _compare_trees(plan: Plan, seed: int, leaves: int | None, as_json: bool) -> None:
    """Simulate other trees and shares for a congenial plan."""
    from das.evaluation.trees import compare_trees, comparison_json, comparison_text
    from das.report.progress import progress_on_stderr

    with progress_on_stderr() as progress:
        found = compare_trees(plan, seed=seed, leaves=leaves, progress=progress)
    if as_json:
        print_json(plan.to_json() | {"trees": comparison_json(found)})
    else:
        click.echo(comparison_text(found))


@click.command("account")
@click.argument("sources", nargs=-1, required=True)
@click.option("--html", type=click.Path(path_type=Path), help="Write the account as a page.")
@as_json
def account_(sources: tuple[str, ...], html: Path | None, as_json: bool) -> None:
    """Account a plan (a config or a preset) or finished releases; several, or a folder of them, together."""
    from das.promise.account_page import write_account_page
    from das.promise.accounted import account_sources

    read, accounted, found = account_sources(sources)
    if html is not None:
        write_account_page(read, accounted, html)
    print_json(found.content) if as_json else click.echo(found.text)


@click.command()
@click.argument("folder", metavar="DIR|LEDGER", type=click.Path(path_type=Path, exists=True))
@click.option("--verify", is_flag=True, help="Check the hash chain, its witnesses, and the release's entry.")
@click.option("--raise-to", metavar="TOTAL", help="Raise what may ever be spent on the data set, for example 7/2.")
@click.option("--accept-loss", is_flag=True, help="Go on although entries are gone; what they charged stays charged.")
@click.option("--distinct-from", metavar="NAME", help="These are other people than those of the data set NAME.")
@click.option("--dataset", metavar="NAME", help="Which data set a decision is about, where the ledger has several.")
@click.option("--reason", help="Why a person decided so; it is recorded, and published with later releases.")
@as_json
def ledger(folder: Path, verify: bool, as_json: bool, **decision: Any) -> None:
    """Show what has been spent on this data, by which release; record a person's decision about it.

    DIR is the folder of a run. After `das table`, `das synth` or an estimate from rows: the ledger's file or folder.
    """
    from das.storage.ledger_view import Decision, ledger_of, ledger_text, rows_of

    book, guard = ledger_of(folder, verify=verify, decision=Decision(**decision))
    shown = (rows_of if as_json else ledger_text)(book, guard, verified=verify)
    print_json(shown) if as_json else click.echo(shown)


@click.command("presets")
def presets_() -> None:
    """List the shipped presets, for ``preset = ...`` in a config."""
    from das.plan import presets

    for name in presets.names():
        click.echo(f"{name:<26}{presets.read(name).get('source', '')}")


COMMANDS: tuple[click.Command, ...] = (check_, plan_, account_, ledger, presets_)
