"""Commands about synthetic records: `synth`, `synth-compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from das.commands.shared import as_json, config_file, out_folder, print_json, testing_key, unprotected
from das.errors import Problem, UsageError

__all__ = ["COMMANDS"]


@click.command("synth")
@click.argument("method", metavar="METHOD|DIR")
@click.argument("config", type=click.Path(path_type=Path), required=False)
@out_folder
@click.option("--from-release", is_flag=True, help="DIR is a release of `das run`: records for each of its leaves.")
@click.option("--model", type=click.Path(path_type=Path), help="With --from-release: a folder that `das synth` wrote.")
@click.option("--match", multiple=True, metavar="COLUMN", help="With --from-release: match by these columns alone.")
@testing_key
@unprotected
@as_json
def synth_(
    method: str,
    config: Path | None,
    out: Path,
    from_release: bool,
    model: Path | None,
    match: tuple[str, ...],
    as_json: bool,
    **noise: Any,
) -> None:
    """Make synthetic records of a file by METHOD, as its CONFIG says; charged once to the ledger.

    Methods: pairs (or graphical), aim, mst, bayes-net, generative, mwem, mwem-cells, pmw, histogram, exponential,
    stability, copula, gaussian.
    das/synthesis/README.md says which serves which data, and what a config holds.

    With --from-release: records for every leaf of the release in DIR that tabulate to its counts exactly, with the
    further columns of a model. Nothing is charged.
    """
    if from_release:
        if config is not None or model is None or any(noise.values()):
            usage = "das synth DIR --from-release --model SYNTH --out OUT"
            raise UsageError(Problem("--from-release", "needs a release and a model, and draws no noise", usage))
        _show_extended(Path(method), model, out, match, as_json)
        return
    if config is None or model is not None or match:
        reason = "a method needs a config; --model and --match belong to --from-release"
        raise UsageError(Problem(method, reason, "das synth METHOD CONFIG --out OUT"))
    from das.storage.hardening import harden
    from das.synthesis.release import release_synthetic

    harden()
    found = release_synthetic(method, config, out, **noise)
    if as_json:
        print_json(found)
        return
    at = f", epsilon {found['epsilon_upper']}" if "epsilon_upper" in found else ""
    at += f" at delta {found['delta']}" if "delta" in found else ""
    framework = "rho" if found["spent"]["framework"] == "zcdp" else "epsilon"
    click.echo(f"{found['rows']} rows in {out}: {_files(out)}")
    click.echo(f"privacy: {framework} {found['charged']}{at} ({found['neighbours']}), {found['status']}")


def _show_extended(folder: Path, model: Path, out: Path, match: tuple[str, ...], as_json: bool) -> None:
    from das.synthesis.from_release import extend_release

    found = extend_release(folder, model, out, match=match)
    if as_json:
        print_json(found)
        return
    click.echo(f"{found['rows']} rows in {out}: {_files(out)}")
    click.echo(f"added: {', '.join(found['added'])}, given {', '.join(found['matched'])}")
    click.echo("privacy: nothing is charged beyond the two releases that these records are computed from")


def _files(out: Path) -> str:
    return ", ".join(sorted((path.name for path in out.iterdir()), key=lambda name: (name.endswith(".json"), name)))


@click.command("synth-compare")
@config_file
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write the comparison as one page (HTML).")
@as_json
def synth_compare_(config: Path, runs: int, out: Path | None, as_json: bool) -> None:
    """Compare the errors of all methods of `das synth` on a file that needs no protection."""
    from das.synthesis.compare import compare_methods, comparison_page, comparison_text

    found = compare_methods(config, runs=runs)
    if out is not None:
        out.write_text(comparison_page(found, f"Synthetic records of {config.stem}"), encoding="utf-8")
    print_json(found) if as_json else click.echo(comparison_text(found))


COMMANDS: tuple[click.Command, ...] = (synth_, synth_compare_)
