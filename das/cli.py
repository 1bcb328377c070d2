"""The ``das`` command: verbs a person types, messages a person can act on, and exit codes a script can."""

from __future__ import annotations

import errno
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

import click

from das.bench import NAMES
from das.bench import measure as measure_bench
from das.errors import Interrupted, Problem, ProblemsFound, UsageError

# Commands import what they need when they run: `das --help` answers at once.
if TYPE_CHECKING:
    from das.plan.plan import Plan

__all__ = ["main"]

INTERNAL_ERROR = 1
_INTERRUPTED = Interrupted(Problem("interrupted", "the run can be continued", "run the same command again"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every failure becomes a message and an exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    own = arguments.index("--") if "--" in arguments else len(arguments)  # what follows is Beam's
    debug = "--debug" in arguments[:own]
    arguments = [argument for argument in arguments[:own] if argument != "--debug"] + arguments[own:]
    signals: list[int] = []

    def interrupt(number: int, _frame: object) -> NoReturn:
        signals.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        das.main(args=arguments, prog_name="das", standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.ClickException as error:
        if debug:
            raise
        error.show()
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        _fail(_INTERRUPTED)
    except ProblemsFound as error:
        if debug:
            raise
        _fail(error)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except (OSError, MemoryError) as error:
        if debug:
            raise
        _fail(_refused(error))
    except Exception as error:
        if debug:
            raise
        if signals:  # a runner wraps what it does not know, an interruption too
            _fail(_INTERRUPTED)
        # The text of an unexpected error may quote data, so only its kind is shown.
        problem = f"an unexpected {type(error).__name__}"
        click.echo(f"das: {problem}; run again with --debug on a machine cleared for the data, and report it", err=True)
        sys.exit(INTERNAL_ERROR)


def _refused(error: OSError | MemoryError) -> ProblemsFound:
    """What the operating system refused, by path; its words never quote a file's contents."""
    if isinstance(error, MemoryError):
        return Interrupted(Problem("das", "there is not enough memory", "use fewer workers, or a larger machine"))
    problem = Problem(str(error.filename or "das"), f"cannot be used ({error.strerror or type(error).__name__})")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Interrupted(replace(problem, remedy="free space and run the same command again"))
    return UsageError(replace(problem, remedy="check that it exists, and that you may read and write it"))


def _fail(error: ProblemsFound) -> NoReturn:
    for problem in error.problems:
        click.echo(f"das: {problem}", err=True)
    sys.exit(error.exit_code)


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


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of a failure.")
@click.version_option(package_name="das")
def das(debug: bool) -> None:
    """Publish counts of people under differential privacy: for each place of a hierarchy, with a privacy statement."""


@das.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo-release"), show_default=True)
@click.option("--blocks", type=click.IntRange(min=10), default=1000, show_default=True)
@click.option("--people", type=click.IntRange(min=0), default=60_000, show_default=True)
@testing_key
@as_json
@beam_options
def demo(out: Path, blocks: int, people: int, as_json: bool, beam: tuple[str, ...], **noise: Any) -> None:
    """Run a whole release of a generated state; no files are needed."""
    from das.demo.starter import write_demo

    config = write_demo(out, blocks=blocks, people=people)
    _run(_load(config), out, "report", beam, as_json, **noise)


@das.command()
@click.argument("folder", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Write a starter: a config, a tiny population and its geography, ready for ``das run``."""
    from das.demo.starter import write_starter

    config = write_starter(folder)
    click.echo(f"wrote {config}\nnext: das check {config} && das run {config} --out {folder / 'out'}")


@das.command("check")
@config_file
@as_json
def check_(config: Path, as_json: bool) -> None:
    """Validate config, geography, inputs and feasibility; report every problem; spend nothing."""
    from das.check import check

    found = check(_load(config))
    if as_json:
        _print_json(found)
        return
    for line in found["lines"]:
        click.echo(line)


@das.command("plan")
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
@as_json
def plan_(
    config: Path, scale: bool, workers: int | None, blocks: int | None, measured: tuple[Path, ...], as_json: bool
) -> None:
    """Show noise, expected error and cost per geolevel and query; read no record."""
    from das.plan.tree_of_counts import tree_of
    from das.promise.account import account
    from das.promise.product import product_of
    from das.report.account_text import account_text
    from das.report.verdict import verdict_text

    plan = _load(config)
    if scale:
        from das.bench.forecast import NATION, measure_states, project, read_measured

        runs = [read_measured(path) for path in measured] or measure_states()
        projected = project(plan, runs, blocks=blocks or NATION, workers=workers or 1)
        if as_json:
            _print_json(projected.to_json())
        else:
            click.echo(projected.text())
        return
    if workers or blocks or measured:
        given = "--workers" if workers else "--blocks" if blocks else "--measured"
        raise UsageError(Problem(given, "means nothing to `das plan` by itself", "use it with --scale"))
    accounted, product = account(plan), product_of(plan)
    if as_json:
        _print_json(plan.to_json() | accounted.sections | ({"product": product.to_json()} if product else {}))
        return
    joint = f"\n{product.text()}" if product else ""
    if plan.mechanism_stage.sampler:
        joint += f"\ncongenial: counts form a tree (laminar): {tree_of(plan).explain()}"
    relation = {"unit": plan.settings.privacy.unit, "kind": str(plan.settings.privacy.neighbours)}
    verdict = "\n".join([*verdict_text({"relation": relation, **accounted.sections}), ""])
    table = f"{verdict}\n{account_text(accounted.nominal, accounted.sections)}"
    click.echo(f"{plan.explain()}{joint}\n\n{table}\n\nNothing was read of the records, nothing was spent.")


@das.command("account")
@click.argument("sources", nargs=-1, required=True)
@click.option("--html", type=click.Path(path_type=Path), help="Write the account as a page (of one plan or release).")
@as_json
def account_(sources: tuple[str, ...], html: Path | None, as_json: bool) -> None:
    """Account a plan (a config or a preset) or finished releases; several are accounted together."""
    from das.promise.joint import joint_account, read_source, write_account_page
    from das.promise.product import product_of
    from das.report.account_text import account_text

    read = [read_source(name) for name in sources]
    accounted = joint_account(read)
    product = product_of(read[0].plan) if len(read) == 1 else None
    if html is not None:
        write_account_page(read, accounted, html)
    if as_json:
        joint = {"product": product.to_json()} if product else {}
        _print_json({"nominal": accounted.nominal, **accounted.sections, **joint})
    else:
        names = " + ".join(source.plan.name for source in read)
        click.echo(f"{names}\n\n{account_text(accounted.nominal, accounted.sections)}")
        if product:
            click.echo(product.text())


@das.command()
@config_file
@out_folder
@testing_key
@unprotected
@trusting
@as_json
@beam_options
def run(config: Path, out: Path, trust_network: bool, as_json: bool, beam: tuple[str, ...], **noise: Any) -> None:
    """Run the release, or continue it after an interruption."""
    _run(_load(config), out, "report", (*beam, *("--trust-network",) * trust_network), as_json, **noise)


def _stage_command(stage: str, text: str) -> None:
    @das.command(stage, help=text)
    @config_file
    @out_folder
    @testing_key
    @unprotected
    @beam_options
    def command(config: Path, out: Path, beam: tuple[str, ...], **noise: Any) -> None:
        _run(_load(config), out, stage, beam, None, **noise)


_stage_command("tabulate", "Count the records of every geounit, into the confidential folder.")
_stage_command("measure", "Measure with noise (and tabulate first, if that has not happened): this spends the budget.")
_stage_command("estimate", "Turn measurements into conforming counts (after the stages before it).")
_stage_command("publish", "Write tables and records (after the stages before it).")


@das.command()
@run_folder
@as_json
def report(folder: Path, as_json: bool) -> None:
    """Write the privacy report of a finished release again, and print the statement."""
    from das.release.finish import rewrite_report
    from das.storage.layout import Layout

    statement = rewrite_report(Layout(folder).release)
    _show(statement, folder, as_json)


@das.command()
@run_folder
@click.option("--verify", is_flag=True, help="Check the hash chain, its witnesses, and the release's entry.")
@click.option("--raise-to", metavar="TOTAL", help="Raise what may ever be spent on the data set, for example 7/2.")
@click.option("--accept-loss", is_flag=True, help="Go on although entries are gone; what they charged stays charged.")
@click.option("--distinct-from", metavar="NAME", help="These are other people than those of the data set NAME.")
@click.option("--reason", help="Why a person decided so; it is recorded, and published with later releases.")
@as_json
def ledger(folder: Path, verify: bool, as_json: bool, **decision: Any) -> None:
    """Show what has been spent on this data, by which release; record a person's decision about it."""
    from das.storage.ledger_view import Decision, ledger_of, ledger_text, rows_of

    book, guard = ledger_of(folder, verify=verify, decision=Decision(**decision))
    shown = (rows_of if as_json else ledger_text)(book, guard, verified=verify)
    _print_json(shown) if as_json else click.echo(shown)


@das.command("evaluate")
@run_folder
@as_json
def evaluate_(folder: Path, as_json: bool) -> None:
    """Compare a release with the truth; needs the confidential folder, and writes into it alone."""
    from das.evaluation.evaluate import evaluate, evaluation_text

    found = evaluate(folder)
    _print_json(found) if as_json else click.echo(evaluation_text(found))


@das.command("simulate")
@click.argument("configs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--runs", type=click.IntRange(min=1), default=10, show_default=True)
@click.option(
    "--information", multiple=True, type=click.Choice(["full", "level"]), help="Compare these; give it twice."
)
@as_json
def simulate_(configs: tuple[Path, ...], runs: int, information: tuple[str, ...], as_json: bool) -> None:
    """Repeat a release on data that need no protection, and measure its accuracy; several configs are compared."""
    from das.evaluation.simulate import compare, comparison_text
    from das.report.progress import progress_on_stderr

    plans = {str(path): _load(path) for path in configs}
    if information:
        plans = {f"{name}, {kind}": plan.with_information(kind) for name, plan in plans.items() for kind in information}
    with TemporaryDirectory(prefix="das-simulate-") as workdir, progress_on_stderr() as progress:
        found = compare(plans, runs, workdir=Path(workdir), progress=progress)
    _print_json(found) if as_json else click.echo(comparison_text(found))


@das.command()
@click.argument("name", type=click.Choice(NAMES))
@click.option("--blocks", type=click.IntRange(min=1), help="Size of the generated state (for `state`).")
@as_json
@beam_options
def bench(name: str, blocks: int | None, as_json: bool, beam: tuple[str, ...]) -> None:
    """Measure this project against a peer, in one process and one run."""
    found = measure_bench(name, blocks=blocks, options=beam)
    if as_json:
        _print_json(found)
        return
    for row in found if isinstance(found, list) else [found]:
        click.echo("  ".join(f"{key} {value}" for key, value in row.items() if key != "details"))


@das.command("compare")
@click.argument("source", required=False, type=click.Path(path_type=Path), metavar="[CONFIG|DIR]")
@click.option("--out", type=click.Path(path_type=Path), help="Write the comparison as one page (HTML).")
@click.option("--epsilon", help="The effective epsilon that all are matched to.  [default: the plan's own; without: 1]")
@click.option("--runs", type=click.IntRange(min=2), help="Runs of each contender.  [default: 5; without a config: 300]")
@as_json
@beam_options
def compare_(
    source: Path | None, out: Path | None, epsilon: str | None, runs: int | None, as_json: bool, beam: tuple[str, ...]
) -> None:
    """Compare raw noise, least squares and conditioned noise at the same effective privacy.

    Without an argument on an example table; with a CONFIG on its own data, which should need no protection, because
    distances from the truth have none; with the DIR of a run on that run's data, into its confidential folder alone.
    """
    from das.evaluation.compare import compare
    from das.report.progress import progress_on_stderr

    with progress_on_stderr() as progress:
        found, text = compare(source, out=out, epsilon=epsilon, runs=runs, options=beam, progress=progress)
    _print_json(found) if as_json else click.echo(text)


@das.command("presets")
def presets_() -> None:
    """List the shipped presets, for ``preset = ...`` in a config."""
    from das.plan import presets

    for name in presets.names():
        click.echo(f"{name:<26}{presets.read(name).get('source', '')}")


def _load(config: Path) -> Plan:
    from das.plan.load import load

    return load(config)


def _run(plan: Plan, out: Path, upto: str, beam: Sequence[str], as_json: bool | None, **noise: Any) -> None:
    from das.check import already_finished
    from das.compiled import kernels_are_compiled
    from das.report.progress import progress_on_stderr
    from das.runner import STAGES, find_runner
    from das.storage.layout import Layout

    if upto == STAGES[-1] and (finished := already_finished(plan, Layout(out))):
        click.echo(f"das: {finished}", err=True)
    if not kernels_are_compiled() and STAGES.index(upto) >= STAGES.index("estimate"):
        click.echo("compiling numerical kernels for this machine: once, under a minute", err=True)
    with progress_on_stderr() as progress:
        find_runner().run(plan, out, upto=upto, options=beam, progress=progress, **noise)
    if as_json is None:
        following = "run" if upto == "publish" else STAGES[STAGES.index(upto) + 1]
        click.echo(f"{upto}: done; next: das {following}")
        return
    _show(json.loads(Layout(out).release.statement.read_bytes()), out, as_json)


def _show(statement: dict[str, Any], folder: Path, as_json: bool) -> None:
    from das.report.text import summary

    if as_json:
        _print_json(statement)
    else:
        click.echo(summary(statement, folder))


def _print_json(content: Any) -> None:
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))
