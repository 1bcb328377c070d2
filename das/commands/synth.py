"""Commands about synthetic records: `synth`, `synth-compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from das.commands.shared import as_json, config_file, out_folder, print_json, testing_key, unprotected

__all__ = ["COMMANDS"]


@click.command("synth")
@click.argument("method")
@config_file
@out_folder
@testing_key
@unprotected
@as_json
def synth_(method: str, config: Path, out: Path, as_json: bool, **noise: Any) -> None:
    """Make synthetic records by METHOD (pairs, aim, mst, bayes-net, mwem, histogram, stability, copula, gaussian).

    One file of records in, one synthetic file out, charged once to the ledger. das/synthesis/README.md says which
    method serves which data, and what a config holds.
    """
    from das.storage.hardening import harden
    from das.synthesis.release import release_synthetic

    harden()
    found = release_synthetic(method, config, out, **noise)
    if as_json:
        print_json(found)
        return
    at = f", epsilon {found['epsilon_upper']} at delta {found['delta']}" if "epsilon_upper" in found else ""
    framework = "rho" if found["spent"]["framework"] == "zcdp" else "epsilon"
    click.echo(f"{found['rows']} rows in {out}: synthetic.csv, synthetic.parquet, privacy.json")
    click.echo(f"privacy: {framework} {found['charged']}{at} ({found['neighbours']}), {found['status']}")


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
