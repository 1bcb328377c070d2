"""Worker processes on this machine, forked from a process that has imported all modules, so that they start fast.

Beam itself starts Python anew for each worker of each stage, which often takes longer than the stage; and if such a
worker is killed, its driver waits for ever. Here the driver notices and fails the stage, which the same command
continues. The workers and the driver talk through :mod:`pipelines.workers.private_server`.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, endpoints_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import WorkerHandler
from apache_beam.transforms.environments import Environment, python_sdk_capabilities
from google.protobuf import text_format

from pipelines.workers.forking import ForkServer
from pipelines.workers.private_server import PrivateServer

__all__ = ["CHANNEL_LOST", "FORKED", "PICKLER", "WORKER_LOST", "ForkedEnvironment", "ForkedWorker", "server", "use"]

FORKED = "das:env:forked:v1"
"""The name, in Beam's sense, of the environment of these workers."""
SHUTDOWN_SECONDS = 30.0
PICKLER = "cloudpickle"
"""How steps are serialised for workers; Beam's default is pure Python and often takes longer than the step."""
WORKER_LOST = "das: a worker process ended"
"""The error that tells the driver that a worker is gone, rather than that a step failed."""
CHANNEL_LOST = "Channel closed prematurely"
"""Beam's error for the same, if it happens to see first that the worker's elements stop."""


_SERVERS: list[ForkServer] = []


def server() -> ForkServer:
    """The fork server of this process's workers; a new one if it was killed."""
    if not _SERVERS or not _SERVERS[0].is_open:
        use(ForkServer.started(one_thread=True))
    return _SERVERS[0]


def use(server: ForkServer) -> None:
    """Have workers forked from this server from now on."""
    _SERVERS[:] = [server]


@Environment.register_urn(FORKED, None)
class ForkedEnvironment(Environment):
    """The environment, in Beam's sense, in which these workers run."""

    def __init__(self) -> None:
        super().__init__(capabilities=python_sdk_capabilities())

    def to_runner_api_parameter(self, context: Any) -> tuple[str, None]:
        """Return the name alone: the environment has no settings."""
        return FORKED, None

    @staticmethod
    def from_runner_api_parameter(*_: Any) -> ForkedEnvironment:
        """Return the environment, which has no settings."""
        return ForkedEnvironment()


class ForkedWorker(WorkerHandler):
    """The runner's handle of one worker process."""

    def __init__(self, server: PrivateServer, state: Any, provision_info: Any) -> None:
        super().__init__(server.control_handler, server.data_plane_handler, state, provision_info)
        self.worker_id = server.new_id()  # Beam's would be a number that anybody can guess
        self._service = endpoints_pb2.ApiServiceDescriptor(url=server.address)
        self.control_conn = server.control_handler.get_conn_by_worker_id(self.worker_id)
        self.data_conn = server.data_plane_handler.get_conn_by_worker_id(self.worker_id)
        self._ended, self._unwanted = threading.Event(), threading.Event()
        reader = threading.Thread(name="das_control_read", target=self._read, daemon=True)
        self.control_conn._read_thread = reader

    def data_api_service_descriptor(self) -> endpoints_pb2.ApiServiceDescriptor:
        """Where the worker exchanges elements."""
        return self._service

    def state_api_service_descriptor(self) -> endpoints_pb2.ApiServiceDescriptor:
        """Where the worker reads side inputs and state."""
        return self._service

    def _read(self) -> None:
        """Read the worker's answers; if they stop because the worker is gone, :meth:`_watch` reports it."""
        with suppress(grpc.RpcError):
            self.control_conn._read()

    def start_worker(self) -> None:
        """Request a process."""
        environment = {
            "WORKER_ID": self.worker_id,
            "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(self._service),
            "PIPELINE_OPTIONS": json.dumps({"pickle_library": PICKLER}),
        }
        self._process = server().worker(environment)
        threading.Thread(target=self._watch, name="das_worker_watch", daemon=True).start()

    def _watch(self) -> None:
        """Once the process has ended, fail all its instructions, pending or new; Beam would wait for them."""
        self._process.wait()
        self._ended.set()
        while not self._unwanted.wait(0.2):
            for name, future in list(self.control_conn._futures_by_id.items()):
                future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=name, error=WORKER_LOST))

    def close(self) -> None:
        """Close the worker's channels, at which it ends."""
        self.control_conn.close()
        self.data_conn.close()
        self.stop_worker()

    def stop_worker(self) -> None:
        """Wait until the process has ended, as it does when the control channel is closed."""
        self._ended.wait(SHUTDOWN_SECONDS)
        self._unwanted.set()
