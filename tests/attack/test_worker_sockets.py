"""Attacks on the channels between the driver and its workers: theft of a file, by another user, over the network.

A real run is held at the moment when its workers exist, by stopping these; its driver goes on to answer. All traffic
goes through Unix sockets or the loopback interface.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
)
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo
from apache_beam.runners.worker.data_plane import TimeBasedBufferingClosableOutputStream

import das
from das.demo.starter import write_starter
from das.errors import UsageError
from das.runner import find_runner
from pipelines.runners import runner_and_options
from pipelines.runners.local import LocalRunner, LocalWorkers
from pipelines.stages.measure import MeasureShard
from pipelines.workers.private_server import PrivateServer

MULTI_PROCESS = ("--runner=multi-process", "--direct_num_workers=2")
NOBODY = 65534
LISTENS = 0x10000  # __SO_ACCEPTCON, in /proc/net/unix
SECRET = "a line that only the driver may read"
CONNECT = """
import os, socket, sys
if sys.argv[2:]:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    print("connected")
except PermissionError:
    print("refused")
"""


def children_of(process: int) -> set[int]:
    """The processes that a process has started and that have not ended."""
    found: set[int] = set()
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found |= set(map(int, thread.read_text().split()))
    return found


def workers_of(driver: int) -> set[int]:
    """The forked processes two below the driver: the one between is the fork server, whose command line they share."""
    forked = {worker for server in children_of(driver) for worker in children_of(server)}
    return {worker for worker in forked if b"fork_server" in Path(f"/proc/{worker}/cmdline").read_bytes()}


def sockets_of(processes: set[int]) -> set[str]:
    """The inode numbers of all sockets that processes hold."""
    found = set()
    for process in processes:
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            try:
                name = os.readlink(descriptor)
            except FileNotFoundError:
                continue
            if name.startswith("socket:["):
                found.add(name[8:-1])
    return found


def internet_sockets(processes: set[int]) -> set[str]:
    """Local addresses of every TCP and UDP socket of processes, listening or not."""
    held = sockets_of(processes)
    tables = [Path("/proc/net") / name for name in ("tcp", "tcp6", "udp", "udp6")]
    rows = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[9] in held}


def unix_listeners(processes: set[int]) -> set[Path]:
    """Paths of the Unix sockets on which processes listen."""
    held = sockets_of(processes)
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {Path(" ".join(row[7:])) for row in rows if row[6] in held and int(row[3], 16) & LISTENS}


@dataclass(frozen=True)
class Held:
    """A run whose workers are stopped, and the socket at which its driver answers."""

    processes: set[int]
    socket: Path
    records: Path


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """The starter in two worker processes."""
    folder = tmp_path_factory.mktemp("held")
    config = write_starter(folder / "input")
    temporary = tempfile.mkdtemp()
    command = [str(Path(sys.executable).with_name("das")), "run", str(config), "--out", str(folder / "out")]
    process = subprocess.Popen(
        [*command, "--testing-key", "held", "--", *MULTI_PROCESS],
        env=os.environ | {"TMPDIR": temporary},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        begun = time.monotonic()
        while len(workers := workers_of(process.pid)) < 2:
            assert process.poll() is None, "the run ended before its workers were seen"
            assert time.monotonic() - begun < 120
            time.sleep(0.02)
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        processes = {process.pid} | children_of(process.pid) | workers
        (socket,) = unix_listeners(processes)
        yield Held(processes, socket, folder / "input" / "people.csv")
    finally:
        process.kill()
        process.wait()  # the fork server sees its input close, and kills the workers
        shutil.rmtree(temporary)


def file_request(path: Path) -> beam_artifact_api_pb2.GetArtifactRequest:
    """The request by which a file was stolen: an artifact service opens the path that it is given."""
    payload = beam_runner_api_pb2.ArtifactFilePayload(path=str(path))
    return beam_artifact_api_pb2.GetArtifactRequest(
        artifact=beam_runner_api_pb2.ArtifactInformation(
            type_urn=common_urns.artifact_types.FILE.urn, type_payload=payload.SerializeToString()
        )
    )


Attempt = Callable[[grpc.Channel, Path, Any], Any]
ATTEMPTS: dict[str, Attempt] = {
    "control": lambda channel, _, ids: next(beam_fn_api_pb2_grpc.BeamFnControlStub(channel).Control(iter(()), **ids)),
    "work": lambda channel, _, ids: beam_fn_api_pb2_grpc.BeamFnControlStub(channel).GetProcessBundleDescriptor(
        beam_fn_api_pb2.GetProcessBundleDescriptorRequest(process_bundle_descriptor_id="1"), **ids
    ),
    "data": lambda channel, _, ids: next(beam_fn_api_pb2_grpc.BeamFnDataStub(channel).Data(iter(()), **ids)),
    "state": lambda channel, _, ids: next(
        beam_fn_api_pb2_grpc.BeamFnStateStub(channel).State(iter([beam_fn_api_pb2.StateRequest(id="1")]), **ids)
    ),
    "logging": lambda channel, _, ids: next(beam_fn_api_pb2_grpc.BeamFnLoggingStub(channel).Logging(iter(()), **ids)),
    "provision": lambda channel, _, ids: beam_provision_api_pb2_grpc.ProvisionServiceStub(channel).GetProvisionInfo(
        beam_provision_api_pb2.GetProvisionInfoRequest(), **ids
    ),
    "artifact": lambda channel, path, ids: b"".join(
        part.data
        for part in beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(channel).GetArtifact(
            file_request(path), **ids
        )
    ),
}
"""A call to each service that Beam's server has, control's two methods apart."""


def attempt(service: str, address: str, path: Path, *ids: str) -> Any:
    """What a caller with these ids gets from a service: the answer, or the status of the refusal."""
    metadata = tuple(("worker_id", one) for one in ids)
    with grpc.insecure_channel(address) as channel:
        try:
            return ATTEMPTS[service](channel, path, {"metadata": metadata, "timeout": 20})
        except grpc.RpcError as error:
            return error.code()  # type: ignore[attr-defined]


def test_a_run_in_worker_processes_has_no_network_address(held: Held) -> None:
    assert len(held.processes) == 4
    assert internet_sockets(held.processes) == set()


def test_its_socket_is_in_a_folder_that_no_other_user_may_enter(held: Held) -> None:
    assert unix_listeners(held.processes) == {held.socket}
    folder = held.socket.parent.stat()
    assert stat.S_IMODE(folder.st_mode) == 0o700
    assert folder.st_uid == os.getuid()
    assert stat.S_ISSOCK(held.socket.stat().st_mode)


@pytest.mark.parametrize("service", ATTEMPTS)
@pytest.mark.parametrize("ids", [(), ("",), ("worker_0",), ("0" * 64,)], ids=["none", "empty", "beams", "guess"])
def test_who_is_no_worker_is_refused_by_every_service(held: Held, service: str, ids: tuple[str, ...]) -> None:
    assert attempt(service, f"unix:{held.socket}", held.records, *ids) is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_connect(held: Held) -> None:
    code = [sys.executable, "-c", CONNECT, str(held.socket)]
    assert subprocess.run(code, capture_output=True, text=True).stdout == "connected\n"
    assert subprocess.run([*code, str(NOBODY)], capture_output=True, text=True).stdout == "refused\n"


def test_ids_are_in_no_command_line_and_in_no_environment(held: Held) -> None:
    for process in held.processes:
        for name in ("cmdline", "environ"):
            shown = Path(f"/proc/{process}/{name}").read_bytes()
            assert b"WORKER_ID=" not in shown
            assert not re.search(rb"[0-9a-f]{64}", shown)


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    state = worker_handlers.StateServicer()
    server = PrivateServer(state, LocalWorkers({}, None))
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "records.csv"
    path.write_text(SECRET)
    return path


def test_a_worker_is_answered_and_still_finds_no_service_that_opens_files(server: PrivateServer, secret: Path) -> None:
    mine = server.new_id()
    answer = attempt("state", server.address, secret, mine)
    assert answer.id == "1"
    for service in ("artifact", "provision", "logging"):
        assert attempt(service, server.address, secret, mine) is grpc.StatusCode.UNIMPLEMENTED


def test_ids_are_long_different_and_sent_alone(server: PrivateServer, secret: Path) -> None:
    first, second = server.new_id(), server.new_id()
    assert len(bytes.fromhex(first)) == len(bytes.fromhex(second)) == 32
    assert first != second
    for ids in (
        (first, second),
        (first, first),
        ("0" * 64, first),
        (first[:-1],),
        (first + "0",),
        (first.upper() + "A",),
    ):
        assert attempt("state", server.address, secret, *ids) is grpc.StatusCode.UNAUTHENTICATED


def test_no_thread_sends_elements_while_they_are_written(server: PrivateServer) -> None:
    """Beam's timed stream sends what it holds and then clears it: what is written between the two is lost."""
    channel = server.data_plane_handler.get_conn_by_worker_id(server.new_id())
    before = threading.active_count()
    stream = channel.output_stream("instruction", "transform")
    assert not isinstance(stream, TimeBasedBufferingClosableOutputStream)
    assert threading.active_count() == before
    stream.write(b"element")
    stream.close()
    assert channel._to_send.get().data == b"element"


def test_the_folder_is_gone_when_the_server_is(secret: Path) -> None:
    server = PrivateServer(worker_handlers.StateServicer(), LocalWorkers({}, None))
    mine, folder = server.new_id(), Path(server.address.removeprefix("unix:")).parent
    assert folder.is_dir()
    server.close()
    assert not folder.exists()
    assert attempt("state", server.address, secret, mine) is grpc.StatusCode.UNAVAILABLE


def test_a_folder_with_blanks_will_do_and_one_with_too_long_a_path_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blanks = Path(tempfile.mkdtemp()) / "50% a b"
    blanks.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(blanks))
    server = PrivateServer(worker_handlers.StateServicer(), LocalWorkers({}, None))
    assert attempt("state", server.address, tmp_path, server.new_id()).id == "1"
    server.close()
    shutil.rmtree(blanks.parent)
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(UsageError, match="set TMPDIR to a folder with a shorter path"):
        PrivateServer(worker_handlers.StateServicer(), LocalWorkers({}, None))
    assert list(long.iterdir()) == []


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address that a gRPC server of this process asks for; all interfaces become the loopback one."""
    asked: list[str] = []
    real = grpc.server

    def on_loopback(*arguments: Any, **options: Any) -> grpc.Server:
        server = real(*arguments, **options)
        bind = server.add_insecure_port

        def add_insecure_port(address: str) -> int:
            asked.append(address)
            return bind(address.replace("[::]", "127.0.0.1"))

        monkeypatch.setattr(server, "add_insecure_port", add_insecure_port)
        return server

    monkeypatch.setattr(grpc, "server", on_loopback)
    return asked


def test_the_theft_works_where_it_is_not_prevented(bound: list[str], secret: Path) -> None:
    """Beam's own server, which would listen on every interface, gives a file to a caller that it does not know."""
    info = ExtendedProvisionInfo(beam_provision_api_pb2.ProvisionInfo())
    server = worker_handlers.GrpcServer(worker_handlers.StateServicer(), info, LocalWorkers({}, info))
    try:
        assert attempt("artifact", f"127.0.0.1:{server.control_port}", secret).decode() == SECRET
    finally:
        server.close()
    assert bound == 4 * ["[::]:0"]


def test_a_pipeline_with_every_kind_of_channel_binds_unix_sockets_alone(bound: list[str]) -> None:
    """Side inputs go through the channel for state, groups through that for data."""
    runner, options = runner_and_options(MULTI_PROCESS)
    pipeline = beam.Pipeline(runner=runner, options=options)
    side = pipeline | "side" >> beam.Create(range(5))
    sums = pipeline | beam.Create(range(10)) | beam.Reshuffle() | beam.Map(add_all, beam.pvalue.AsList(side))
    _ = sums | beam.CombineGlobally(sum) | "check" >> beam.Map(require, 145)
    pipeline.run().wait_until_finish()
    (address,) = bound
    assert address.startswith("unix:")
    assert not Path(address.removeprefix("unix:")).parent.exists()


def add_all(number: int, side: list[int]) -> int:
    return number + sum(side)


def require(found: int, wanted: int) -> None:
    if found != wanted:
        raise ValueError("another sum")


def test_a_run_in_memory_listens_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: list[str]) -> None:
    """Looked at from within a step, which the driver itself executes."""
    me = {os.getpid()}
    before = internet_sockets(me), unix_listeners(me)
    seen = []
    process = MeasureShard.process

    def looking(self: MeasureShard, element: Any) -> Any:
        seen.append((internet_sockets(me), unix_listeners(me)))
        return process(self, element)

    monkeypatch.setattr(MeasureShard, "process", looking)
    plan = das.load(write_starter(tmp_path / "input"))
    find_runner().run(plan, tmp_path / "out", upto="measure", testing_key="memory")
    assert seen == len(seen) * [before]
    assert len(seen) == 3
    assert bound == []


@pytest.mark.parametrize("mode", ["multi_threading", "multi_processing"])
@pytest.mark.parametrize("runner", ["in-memory", "multi-process", "SwitchingDirectRunner"])
def test_beams_own_workers_are_refused(runner: str, mode: str) -> None:
    with pytest.raises(UsageError, match=r"--direct_running_mode: would start workers .*; use --runner=multi-process"):
        runner_and_options([f"--runner={runner}", f"--direct_running_mode={mode}"])


def test_no_worker_is_started_for_another_environment() -> None:
    """Not even if the option comes in another way: Beam would serve such a worker through its own server."""
    environment = beam_runner_api_pb2.Environment(urn=common_urns.environments.EXTERNAL.urn)
    workers = LocalWorkers({"1": environment}, ExtendedProvisionInfo(beam_provision_api_pb2.ProvisionInfo()))
    with pytest.raises(RuntimeError, match="no worker is started for the environment beam:env:external:v1"):
        workers.get_worker_handlers("1", 1)


def another_way(self: FnApiRunner, stage_context: Any, stages: list[Any]) -> None:
    """A future ``run_stages`` that makes its workers under another name."""


def test_a_beam_that_makes_its_workers_in_another_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(runner_and_options([])[0], LocalRunner)
    monkeypatch.setattr(FnApiRunner, "run_stages", another_way)
    for runner in ("in-memory", "multi-process"):
        with pytest.raises(UsageError, match=r"apache-beam: of version .* install the version of requirements\.lock"):
            runner_and_options([f"--runner={runner}"])
