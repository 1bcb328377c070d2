"""Clusters on this machine by name: ``python -m pipelines.runners.clusters NAME up | down | status``."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import click

from das.errors import ProblemsFound
from pipelines.runners.cluster import Cluster
from pipelines.runners.flink import Flink
from pipelines.runners.spark import Spark

__all__ = ["CLUSTERS", "FLINK", "SPARK"]

FLINK = Flink()
SPARK = Spark()
CLUSTERS: Mapping[str, Cluster] = {cluster.name: cluster for cluster in (FLINK, SPARK)}


@click.command()
@click.argument("name", type=click.Choice(list(CLUSTERS)))
@click.argument("action", type=click.Choice(["up", "down", "status"]))
def main(name: str, action: str) -> None:
    """Start, stop or show a cluster on this machine."""
    cluster = CLUSTERS[name]
    try:
        if action == "up":
            cluster.up()
        elif action == "down":
            cluster.down()
    except ProblemsFound as error:
        for problem in error.problems:
            click.echo(f"{name}: {problem}", err=True)
        sys.exit(error.exit_code)
    for process in cluster.processes():
        pid = cluster.pid_of(process.name)
        click.echo(f"{process.name:14} {f'runs ({pid})' if pid else 'does not run'}")
    if action == "status":
        sys.exit(0 if cluster.is_up() else 1)


if __name__ == "__main__":
    main()
