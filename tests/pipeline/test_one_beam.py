"""One release of Beam on both sides: the Python one that is pinned, and the job servers that are downloaded."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

import das
from das.errors import UsageError
from pipelines.runners import jars, preflight
from pipelines.runners.cluster import JOB_SERVER, Cluster
from pipelines.runners.clusters import CLUSTERS

ROOT = Path(__file__).resolve().parents[2]


def test_the_lock_has_the_beam_of_the_job_servers_and_the_range_begins_with_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (needed,) = (each for each in project["dependencies"] if each.startswith("apache-beam"))
    range_of = SpecifierSet(needed.removeprefix("apache-beam"))
    assert jars.BEAM in range_of
    assert "2.61.0" not in range_of
    assert version("apache-beam") in range_of
    assert f"apache-beam=={jars.BEAM} " in (ROOT / "requirements.lock").read_text()


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_newer_beam_is_refused_for_a_cluster_before_anything_is_charged(
    name: str, starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "version", lambda package: "2.77.0" if package == "apache-beam" else "0")
    reason = rf"apache-beam: is 2.77.0 here, and the clusters' job servers are of {jars.BEAM}; install .*=multi-process"
    with pytest.raises(UsageError, match=reason):
        das.run(das.load(starter), out=tmp_path / "out", options=[f"--runner={name}", "--job_endpoint=localhost:1"])
    assert not (starter.parent / "ledger.sqlite").exists()


@pytest.fixture(params=CLUSTERS.values(), ids=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    cluster: Cluster = request.param
    return cluster


def test_no_cluster_is_started_for_another_beam(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "version", lambda _: "2.0.0")
    with pytest.raises(UsageError, match=rf"apache-beam: is 2.0.0 here, and the job server is of {jars.BEAM}; install"):
        cluster.up()


@pytest.fixture
def another(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Something that looks like a job server started from the jars of another release."""
    monkeypatch.setenv(jars.CACHE, str(tmp_path / "cache"))
    (server,) = (process for process in cluster.processes() if process.name == JOB_SERVER)
    classes = tmp_path / "cache" / f"{cluster.name}-1.19.3-beam-2.0.0" / "gradle" / "wrapper" / "*"
    waiting = [sys.executable, "-c", "print(flush=True); input()", "-cp", str(classes), server.main]
    process = subprocess.Popen(waiting, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()  # it runs now, and has a name
    pid_file = cluster.pid_file(server.name)
    pid_file.parent.mkdir(parents=True)
    pid_file.write_text(str(process.pid))
    yield
    process.kill()
    process.communicate()


@pytest.mark.usefixtures("another")
def test_a_job_server_of_another_beam_is_refused_before_anything_is_charged(
    cluster: Cluster, starter: Path, tmp_path: Path
) -> None:
    assert cluster.beam_that_runs() == "2.0.0"
    reason = rf"is of Beam 2.0.0, and apache-beam here is .*; stop it with `bash scripts/{cluster.name} down`"
    with pytest.raises(UsageError, match=reason):
        das.run(das.load(starter), out=tmp_path / "out", options=[f"--runner={cluster.name}"])
    assert not (starter.parent / "ledger.sqlite").exists()


def test_a_job_server_that_does_not_run_has_no_release(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jars.CACHE, str(tmp_path))
    assert cluster.beam_that_runs() is None
