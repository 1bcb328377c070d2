"""Clusters on this machine by name: ``python -m pipelines.runners NAME up | down | status | exec COMMAND``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import click

from das.errors import Problem, ProblemsFound, UsageError
from pipelines.runners.cluster import Cluster
from pipelines.runners.flink import Flink
from pipelines.runners.spark import Spark

__all__ = ["CLUSTERS", "FLINK", "SPARK", "main"]

FLINK = Flink()
SPARK = Spark()
CLUSTERS: Mapping[str, Cluster] = {cluster.name: cluster for cluster in (FLINK, SPARK)}
OPEN = "warning: it has no private network; whoever reaches this machine's ports can run any command as you"


@click.command()
@click.argument("name", type=click.Choice(list(CLUSTERS)))
@click.argument("action", type=click.Choice(["up", "down", "status", "exec"]))
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--trust-network", is_flag=True, help="With `up`: do without a private network.")
def main(name: str, action: str, command: tuple[str, ...], trust_network: bool) -> None:
    """Start, stop or show a cluster on this machine, or run a command in its private network."""
    cluster = CLUSTERS[name]
    try:
        if action == "exec":
            _execute(cluster, command)
        if command or (trust_network and action != "up"):
            raise UsageError(Problem((*command, "--trust-network")[0], f"means nothing to `{action}`", "leave it out"))
        if action == "up":
            cluster.up(trust_network=trust_network)
        elif action == "down":
            cluster.down()
    except ProblemsFound as error:
        for problem in error.problems:
            click.echo(f"{name}: {problem}", err=True)
        sys.exit(error.exit_code)
    pids = {process.name: cluster.pid_of(process.name) for process in cluster.processes()}
    for process, pid in {"network": cluster.network.pid, **pids}.items():
        click.echo(f"{process:14} {f'runs ({pid})' if pid else 'does not run'}")
    if any(pids.values()) and not cluster.network.pid:
        click.echo(f"{name}: {OPEN}", err=True)
    if action == "status":
        sys.exit(0 if cluster.is_up() else 1)


def _execute(cluster: Cluster, command: tuple[str, ...]) -> None:
    """Become the command, in the cluster's network."""
    if not command:
        raise UsageError(
            Problem("exec", "no command was given", f"for example `bash scripts/{cluster.name} exec das ...`")
        )
    if cluster.network.pid is None:
        raise UsageError(Problem(cluster.title, "has no private network now", f"start it with `{cluster.start}`"))
    argv = (*cluster.network.prefix, *command)
    os.execvp(argv[0], argv)
