"""A cluster under attack by another user of the machine, who is outside its private network and reaches nothing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.stager import Stager

import das
from das.demo.starter import write_starter
from das.errors import UsageError
from pipelines.runners import jars, namespace, runner_and_options
from pipelines.runners.clusters import CLUSTERS, FLINK
from pipelines.runners.private_network import PrivateNetwork, listening_in

pytestmark = pytest.mark.usefixtures("private_networks")
ANOTHER, THIRD = 65534, 65533
"""Users without any rights."""
SERVER = """
import socket
server = socket.create_server(("", 0))
print(server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(b"confidential")
    connection.close()
"""
READ = "import socket, sys; print(socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5).recv(99).decode())"


def addresses_of_this_machine() -> set[str]:
    """Loopback, and whatever else the name of this machine stands for."""
    found = {str(info[4][0]) for info in socket.getaddrinfo(None, 0, flags=socket.AI_PASSIVE)} | {"127.0.0.1", "::1"}
    with suppress(OSError):
        found |= {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), 0)}
    return found


def answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def serving(*prefix: str, **how: Any) -> Iterator[int]:
    """A server that gives confidential data to whoever asks, on every interface it has; its port."""
    command = [*prefix, sys.executable, "-I", "-S", "-c", SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **how) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.kill()


def test_what_listens_in_the_network_is_reached_from_inside_alone(tmp_path: Path) -> None:
    network = PrivateNetwork(tmp_path)
    network.up()
    try:
        with serving(*network.prefix) as port:
            read = subprocess.run(
                [*network.prefix, sys.executable, "-c", READ, str(port)], capture_output=True, text=True
            )
            assert read.stdout == "confidential\n"
            assert listening_in(network.pid) == {port: True}
            assert port not in listening_in()
            assert [address for address in addresses_of_this_machine() if answers(address, port)] == []
        with serving() as port:  # the attack itself works where there is no private network
            assert answers("127.0.0.1", port)
    finally:
        network.down()


@pytest.fixture
def public_copy() -> Iterator[tuple[str, str]]:
    """A Python and the program that makes a network, where every user can read them."""
    python = shutil.which("python3", path=os.defpath)
    if os.geteuid() or python is None:
        pytest.skip("needs root, to become other users, and a Python that they may run")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = shutil.copy(namespace.__file__, folder)
        os.chmod(copy, 0o644)
        yield python, str(copy)


def user(number: int) -> dict[str, Any]:
    return {"user": number, "group": number, "extra_groups": (), "cwd": "/", "text": True}


def test_without_root_a_network_is_made_and_another_user_cannot_enter_it(public_copy: tuple[str, str]) -> None:
    python, program = public_copy
    hold = [python, "-I", "-S", program, "hold", "a folder"]
    with subprocess.Popen(hold, stdout=subprocess.PIPE, **user(ANOTHER)) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.read() == namespace.READY
            enter = [python, "-I", "-S", program, "enter", str(holder.pid)]
            ask = "import os; print(os.getuid(), os.getgid(), open('/proc/net/dev').read())"
            own = subprocess.run([*enter, python, "-c", ask], capture_output=True, **user(ANOTHER))
            assert own.stdout.split()[:2] == [str(ANOTHER)] * 2
            devices = [line.split(":")[0].strip() for line in own.stdout.splitlines() if ":" in line]
            assert devices == ["lo"]
            theirs = subprocess.run([*enter, python, "-c", ask], capture_output=True, **user(THIRD))
            assert (theirs.returncode, theirs.stdout) == (2, "")
            assert f"das: /proc/{holder.pid}/ns/user: cannot be used (Permission denied)" in theirs.stderr
        finally:
            holder.kill()


class Planted(beam_job_api_pb2_grpc.JobServiceServicer):
    """A job server that another user has planted at the address of the cluster: it keeps what it is sent."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def DescribePipelineOptions(self, request: Any, context: Any) -> Any:
        self.asked.append("options")
        return beam_job_api_pb2.DescribePipelineOptionsResponse()

    def Prepare(self, request: Any, context: Any) -> Any:
        self.asked.append(f"job of {len(request.pipeline.components.transforms)} steps")
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "")


def test_a_planted_job_server_is_sent_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits where the cluster would be; a run that nobody has told to trust the network does not give it a job."""
    monkeypatch.setenv(jars.CACHE, str(tmp_path / "cache"))
    planted, server = Planted(), grpc.server(ThreadPoolExecutor(1))
    beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(planted, server)
    port = server.add_insecure_port("127.0.0.1:0")
    monkeypatch.setattr(type(FLINK), "job_endpoint", f"localhost:{port}")
    monkeypatch.setattr(type(FLINK), "options", FLINK.options | {"job_endpoint": f"localhost:{port}"})
    server.start()
    try:
        with pytest.raises(UsageError, match="not private, where others may reach or read it"):
            das.run(das.load(write_starter(tmp_path / "in")), out=tmp_path / "out", options=["--runner=flink"])
    finally:
        server.stop(None)
    assert planted.asked == ["options", "job of 0 steps"]
    assert not (tmp_path / "in" / "ledger.sqlite").exists()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=(getattr(pytest.mark, name), pytest.mark.timeout(600))) for name in CLUSTERS]
)
def test_no_port_of_a_running_cluster_is_open_outside(name: str) -> None:
    """Job server, artifact service, web page and all that Java opens, on loopback and on the machine's addresses."""
    cluster = CLUSTERS[name]
    was_up = cluster.is_up()
    outside = set(listening_in())
    try:
        cluster.up()
    except UsageError as error:
        pytest.skip(f"no {cluster.title} cluster: {error}")
    try:
        ask = "import sys; from pipelines.runners.exposure import checklist; from pathlib import Path; " + (
            "print(*(c.what for c in checklist(*sys.argv[1:3], Path('/'))), sep='\\n')"
        )
        command = [*cluster.network.prefix, sys.executable, "-c", ask, cluster.job_endpoint, name]
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        artifacts = next(line for line in found.splitlines() if line.startswith("artifact service "))
        inside = set(listening_in(cluster.network.pid))
        assert int(artifacts.rpartition(":")[2]) in inside
        assert len(inside) >= 4
        assert {int(address.rpartition(":")[2]) for p in cluster.processes() for address in p.listens} <= inside
        reached = [(a, port) for a in addresses_of_this_machine() for port in inside - outside if answers(a, port)]
        assert reached == []
    finally:
        if not was_up:
            cluster.down()


def test_a_link_planted_in_the_shared_temporary_folder_stops_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "dataflow-requirements-cache").symlink_to("nowhere")
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    _, options = runner_and_options(["--runner=flink"])
    Stager.create_job_resources(options, str(tmp_path), log_submission_env_dependencies=False)
    assert [path.name for path in shared.iterdir()] == ["dataflow-requirements-cache"]
    assert not (shared / "nowhere").exists()
