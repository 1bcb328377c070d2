"""What a cluster of one's own leaves open: each line of the checklist against servers that are open or closed."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

import das
from das.errors import UsageError
from pipelines.runners import exposure, jars, preflight
from pipelines.runners.clusters import FLINK
from pipelines.runners.exposure import Check, State, checklist


class JobServer(beam_job_api_pb2_grpc.JobServiceServicer):
    """Beam's job server, as far as the checklist asks it."""

    def __init__(self, artifacts: str) -> None:
        self.artifacts = artifacts

    def DescribePipelineOptions(self, request: Any, context: Any) -> Any:
        return beam_job_api_pb2.DescribePipelineOptionsResponse()

    def Prepare(self, request: Any, context: Any) -> Any:
        answer = beam_job_api_pb2.PrepareJobResponse(preparation_id="1")
        answer.artifact_staging_endpoint.url = self.artifacts
        return answer


@contextmanager
def job_server(artifacts: str, host: str = "127.0.0.1") -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(JobServer(artifacts), server)
    port = server.add_insecure_port(f"{host}:0")
    server.start()
    yield f"localhost:{port}"
    server.stop(None)


@contextmanager
def web_page(pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch, code: int = 200) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(pages.get(self.path)).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    monkeypatch.setattr(exposure, "WEB_PAGES", {"flink": (server.server_port, "overview")})
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield
    server.shutdown()
    server.server_close()
    thread.join()


def states(checks: tuple[Check, ...]) -> dict[str, State]:
    return {
        check.what.partition(" http")[0].partition(" localhost")[0].partition(" /")[0]: check.state for check in checks
    }


def test_an_open_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = [{"key": "rest.port", "value": "8081"}]
    with (
        socket.create_server(("127.0.0.1", 0)) as artifacts,
        job_server(f"localhost:{artifacts.getsockname()[1]}") as endpoint,
        web_page({"/overview": {}, "/jobmanager/config": config}, monkeypatch),
    ):
        found = checklist(endpoint, "flink", tmp_path)
    assert states(found) == {
        "job server": State.OPEN,
        "artifact service": State.OPEN,
        "web page": State.OPEN,
        "traffic between flink's processes": State.OPEN,
        "ports of workers": State.UNKNOWN,
        "temporary folders and logs": State.UNKNOWN,
        "file system of": State.CLOSED,
        "confidential folder": State.CLOSED,
    }
    assert found[0].found.endswith("its address is loopback, where every user of this machine reaches it")
    assert all(check.needed for check in found)


def test_what_is_closed_is_said_to_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = [{"key": "security.ssl.internal.enabled", "value": "true"}]
    with web_page({"/overview": {}, "/jobmanager/config": config}, monkeypatch):
        assert (
            states(tuple(exposure._web_page("localhost", "flink", "")))["traffic between flink's processes"]
            is State.CLOSED
        )
    with web_page({}, monkeypatch, code=401):
        found = states(tuple(exposure._web_page("localhost", "flink", "")))
    assert found == {"web page": State.CLOSED, "traffic between flink's processes": State.UNKNOWN}


def test_what_does_not_answer_is_not_said_to_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        monkeypatch.setattr(exposure, "WEB_PAGES", {"flink": (port, "overview"), "spark": (port, "json/")})
        with job_server(f"localhost:{port}") as endpoint:
            for cluster in ("flink", "spark"):
                found = states(checklist(endpoint, cluster, tmp_path))
                assert found["artifact service"] is State.UNKNOWN
                assert found["web page"] is State.UNKNOWN
                assert found[f"traffic between {cluster}'s processes"] is State.UNKNOWN


def test_who_reaches_the_job_server() -> None:
    with socket.create_server(("0.0.0.0", 0)) as wide:
        port = wide.getsockname()[1]
        assert exposure._reached_by("localhost", port) == (
            "it listens on every interface of this machine, not on loopback alone"
        )
    assert exposure._reached_by("192.0.2.1", 8099) == "its address is not loopback"
    assert exposure._reached_by("no such host", 8099) == "its address is unknown"


@pytest.mark.parametrize(
    ("kind", "options", "state"),
    [
        ("ext4", "rw", State.CLOSED),
        ("nfs4", "rw,vers=4.2,sec=sys,proto=tcp", State.OPEN),
        ("nfs4", "rw,vers=4.2,sec=krb5i", State.OPEN),
        ("nfs4", "rw,vers=4.2,sec=krb5p,proto=tcp", State.CLOSED),
        ("nfs", "rw,xprtsec=tls", State.CLOSED),
        ("cifs", "rw,vers=3.1.1,seal", State.CLOSED),
        ("cifs", "rw,vers=3.1.1", State.OPEN),
    ],
)
def test_how_the_shared_folder_travels(
    kind: str, options: str, state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = os.stat(tmp_path).st_dev
    mounts = tmp_path / "mounts"
    mounts.write_text(f"36 35 {os.major(device)}:{os.minor(device)} / /shared rw shared:1 - {kind} far:/x {options}\n")
    monkeypatch.setattr(exposure, "MOUNTS", mounts)
    assert exposure._file_system(tmp_path).state is state
    mounts.write_text("")
    assert exposure._file_system(tmp_path).state is State.UNKNOWN


def test_the_modes_of_the_confidential_folder(tmp_path: Path) -> None:
    (tmp_path / "confidential").mkdir(mode=0o700)
    assert exposure._modes(tmp_path).state is State.CLOSED
    (tmp_path / "confidential").chmod(0o750)
    assert exposure._modes(tmp_path) == Check(
        f"confidential folder {tmp_path / 'confidential'}",
        State.OPEN,
        "has mode 0750",
        "let only this user enter it (chmod 700)",
    )


# The refusal, and what is shown when the network is trusted.


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Options of a job server that is in no private network; the small job is not run."""
    monkeypatch.setenv(jars.CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(preflight, "_probe", lambda *_: set())
    with job_server("localhost:1") as endpoint:
        yield ["--runner=flink", f"--job_endpoint={endpoint}"]


def test_a_cluster_outside_a_private_network_is_refused_with_the_checklist(
    elsewhere: list[str], starter: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        das.run(das.load(starter), out=tmp_path / "out", options=elsewhere)
    first, *lines = refused.value.problems
    assert first.where == "--runner=flink"
    assert "`bash scripts/flink up`" in first.remedy
    assert first.remedy.endswith("add --trust-network")
    assert [line.where.partition("]")[0] for line in lines[:2]] == ["[open", "[not verified"]
    assert len(lines) == 8
    assert not (starter.parent / "ledger.sqlite").exists()


def test_with_a_trusted_network_the_checklist_is_shown_and_the_run_goes_on(
    elsewhere: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preflight._require_fit([*elsewhere, "--trust-network"], tmp_path)
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 8
    assert said.err.startswith(f"das: [open] job server {elsewhere[1].partition('=')[2]}: takes jobs from anyone")


def test_runners_without_a_job_server_are_refused_too(tmp_path: Path) -> None:
    for options in (["--runner=flink", "--job_endpoint=embed"], ["--runner=PortableRunner"]):
        with pytest.raises(UsageError) as refused:
            preflight._require_closed(options, tmp_path)
        assert len(refused.value.problems) == 5


@pytest.mark.usefixtures("private_networks")
def test_nothing_is_said_of_a_cluster_in_its_private_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(jars.CACHE, str(tmp_path))
    FLINK.folder.mkdir()
    FLINK.network.up()
    try:
        with pytest.raises(UsageError):  # this process is not in it
            preflight._require_closed(["--runner=flink"], tmp_path)
        monkeypatch.setattr(type(FLINK.network), "is_here", True)
        preflight._require_closed(["--runner=flink"], tmp_path)
    finally:
        FLINK.network.down()
    assert capsys.readouterr().err == ""
