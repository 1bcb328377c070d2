"""The command that makes synthetic records: `synth`."""

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


COMMANDS: tuple[click.Command, ...] = (synth_,)
