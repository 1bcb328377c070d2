"""Clusters on this machine without starting one: what is downloaded, where it listens, what is said if it cannot be."""

from __future__ import annotations

import io
import shlex
import shutil
import socket
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from das.errors import UsageError
from pipelines.runners import cluster as cluster_module
from pipelines.runners import clusters, jars, runner_and_options
from pipelines.runners.cluster import JOB_SERVER, Cluster, Process
from pipelines.runners.clusters import CLUSTERS, FLINK, SPARK


@pytest.fixture(params=CLUSTERS.values(), ids=CLUSTERS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster that was never started or downloaded."""
    monkeypatch.setenv(jars.CACHE, str(tmp_path / "cache"))
    cluster: Cluster = request.param
    return cluster


def test_clusters_can_run_beside_one_another() -> None:
    processes = [process for cluster in CLUSTERS.values() for process in cluster.processes()]
    listens = Counter(address for process in processes for address in process.listens)
    assert set(listens.values()) == {1}
    assert all(address.startswith("localhost:") for address in listens)


def test_the_folder_of_the_jars_names_their_releases_and_is_not_sent_with_each_job(cluster: Cluster) -> None:
    home = cluster.distribution.home
    assert home.parts[-3:] == (f"{cluster.name}-{cluster.distribution.version}-beam-{jars.BEAM}", "gradle", "wrapper")


def test_the_job_server_passes_the_java_options_to_sparks_executors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jars.CACHE, str(tmp_path / "a folder with blanks"))
    (server,) = (process for process in SPARK.processes() if process.name == JOB_SERVER)
    (option,) = (flag for flag in server.flags if flag.startswith("-Dspark.executor.extraJavaOptions="))
    assert tuple(shlex.split(option.partition("=")[2])) == SPARK.flags


@pytest.mark.parametrize("tool", ["java", "mvn"])
def test_what_is_not_installed_is_named(cluster: Cluster, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == tool else name)
    if tool == "java":
        monkeypatch.setattr(cluster_module, "jars", lambda _: Path())
    said = CliRunner().invoke(clusters.main, [cluster.name, "up"])
    assert said.exit_code == 2
    assert said.stderr.startswith(f"{cluster.name}: {tool}: is not installed; a {cluster.title} cluster needs ")


def test_a_cluster_that_does_not_run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(cluster), "has_workers", lambda _: False)
    said = CliRunner().invoke(clusters.main, [cluster.name, "status"])
    assert said.exit_code == 1
    assert len(cluster.processes()) == 4
    assert said.stdout.count("does not run") == 1 + 4  # the network, too


def test_stopping_removes_what_killed_processes_spilled(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(cluster), "folder", property(lambda _: tmp_path))
    monkeypatch.setattr(type(cluster), "network", property(lambda _: SimpleNamespace(down=lambda: None)))
    (tmp_path / "tmp" / "flink-io-1").mkdir(parents=True)
    (tmp_path / "tmp" / "flink-io-1" / "spilled").write_bytes(b"records")
    (tmp_path / "tmp" / "file").write_bytes(b"records")
    (tmp_path / "log").touch()
    cluster.down()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["log", "tmp"]


def test_a_port_that_is_taken(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "jars", lambda _: Path())
    monkeypatch.setattr(cluster_module, "java", lambda _: "java")
    with socket.create_server(("localhost", 0)) as other:
        address = f"localhost:{other.getsockname()[1]}"
        taken = (Process(JOB_SERVER, "Main", "1m", listens=(address,)),)
        monkeypatch.setattr(type(cluster), "processes", lambda _: taken)
        with pytest.raises(UsageError, match=f"{address}: another program listens there; stop it, or use its cluster"):
            cluster.up(trust_network=True)


def test_jars_other_than_those_that_were_tested(cluster: Cluster) -> None:
    folder = cluster.distribution.home / cluster.distribution.below
    folder.mkdir(parents=True)
    (folder / "another.jar").touch()
    with pytest.raises(UsageError, match="holds other jars than those that were tested; delete it and try again"):
        jars.jars(cluster.distribution)


def test_beams_version_of_a_jar_takes_the_place_of_the_clusters(tmp_path: Path) -> None:
    found = tmp_path / "jars"
    found.mkdir()
    (found / "guava-32.0-jre.jar").touch()
    package = tmp_path / "package.tar.gz"
    with tarfile.open(package, "w:gz") as archive:
        for name in ("guava-14.0.1.jar", "guava-extra-1.0.jar", "spark-core_2.12-3.5.8.jar", "notes.txt"):
            archive.addfile(tarfile.TarInfo(f"package/deps/jars/{name}"), io.BytesIO())
    jars._unpack(SPARK.distribution, package, found)
    names = {path.name for path in found.iterdir()}
    assert names == {"guava-32.0-jre.jar", "guava-extra-1.0.jar", "spark-core_2.12-3.5.8.jar"}
    only = tmp_path / "only"
    only.mkdir()
    jars._unpack(replace(FLINK.distribution, wanted=("spark-",)), package, only)
    assert [path.name for path in only.iterdir()] == ["spark-core_2.12-3.5.8.jar"]


def test_an_unknown_runner_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match="is not a runner that can be used here; in-memory, multi-process, flink, spark, "
    ):
        runner_and_options(["--runner=abacus"])
