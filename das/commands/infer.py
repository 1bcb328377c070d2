"""Commands for those who use a release: `infer METHOD`; each module listed here gives its methods."""

from __future__ import annotations

import click

from das.commands import infer_confidential, infer_likelihood, infer_regression

__all__ = ["COMMANDS"]


@click.group()
def infer() -> None:
    """Fit models to released numbers, noise accounted for, or estimate once from rows, charged to the ledger."""


for _command in (*infer_likelihood.METHODS, *infer_regression.METHODS, *infer_confidential.METHODS):
    infer.add_command(_command)

COMMANDS: tuple[click.Command, ...] = (infer,)
