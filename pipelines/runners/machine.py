"""What this machine offers to runs: Beam, what keeps the wall, private networks, and clusters."""

from __future__ import annotations

import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

from das.errors import ProblemsFound
from das.runner import Finding
from pipelines.runners.clusters import CLUSTERS
from pipelines.runners.private_network import PrivateNetwork
from pipelines.wall import landlock

__all__ = ["findings"]


def findings() -> list[Finding]:
    """List what was found. A private network is tried: it is made and ended at once."""
    found = [Finding("apache-beam", version("apache-beam")), _wall(), _network()]
    for name in ("java", "mvn"):
        path = shutil.which(name)
        found.append(Finding(name, path or "not found", "" if path else "only Flink and Spark need it"))
    for name, cluster in CLUSTERS.items():
        found.append(Finding(name, "runs" if cluster.is_up() else "does not run", f"bash scripts/{name} up"))
    return found


def _wall() -> Finding:
    abi = landlock.abi()
    if abi:
        return Finding("Landlock", f"version {abi}", "the kernel keeps later stages from confidential files")
    return Finding("Landlock", "not there", "a mount namespace is tried instead; the statement says what kept the wall")


def _network() -> Finding:
    name = "private network"
    with tempfile.TemporaryDirectory(prefix="das-") as folder:
        network = PrivateNetwork(Path(folder))
        try:
            network.up()
        except ProblemsFound as error:
            return Finding(name, "not possible", str(error.problems[0]))
        network.down()
    return Finding(name, "possible", "Flink and Spark on this machine are reachable by nobody else")
