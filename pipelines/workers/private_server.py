"""The driver's side of the channels to its worker processes: a gRPC server that nobody but they can use.

Beam's own server for local workers listens on every network interface, asks nobody who they are, and adds an artifact
service that opens whatever path it is asked for, with the rights of the driver. Whoever reached it could read the
records, the true counts and the run key. This one is closed three times over:

=====================  ==============================================================================================
where it listens       a Unix socket in a new folder of mode 0700: the kernel lets no other user in, and no network
whom it answers        callers that send the id of a worker of this run, 256 random bits; all others are refused
what it serves         control, data and state of the workers; no artifact, provision or logging service exists
=====================  ==============================================================================================

An id reaches its worker through the pipe of :mod:`pipelines.workers.process_pool`. It is never an argument, a variable
of the environment or part of a file, which other processes of the machine could read.
"""

from __future__ import annotations

import hmac
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    BeamFnControlServicer,
    GrpcStateServicer,
)
from apache_beam.runners.worker.data_plane import BeamFnDataServicer
from apache_beam.utils.thread_pool_executor import shared_unbounded_instance

from das.errors import Problem, UsageError

__all__ = ["PrivateServer"]

ID_BYTES = 32
WORKER_ID = "worker_id"
"""The metadata key under which Beam's worker sends its id with every call."""
LONGEST_PATH = 107
"""Bytes of a Unix socket's path, without the closing zero; see unix(7)."""
CLOSING_SECONDS = 5
UNTIMED = 0
"""Have Beam send elements when all are written. With a time limit, a thread of Beam's sends what has come together and
then clears it, and what is written between the two is lost: on a busy machine a step can go without its input."""
OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # Beam bounds its messages itself
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.max_pings_without_data", 0),  # workers that are busy for long ping often
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),  # no second process may listen at the same address
)


class PrivateServer:
    """Serve control, data and state to the workers of one pipeline.

    Parameters
    ----------
    state
        Beam's keeper of state and side inputs.
    descriptors
        What :class:`BeamFnControlServicer` asks for the descriptions of work: an object with
        ``get_process_bundle_descriptor``.
    """

    def __init__(self, state: Any, descriptors: Any) -> None:
        self._ids: set[bytes] = set()
        self._folder = Path(tempfile.mkdtemp(prefix="das-"))  # of mode 0700
        path = self._folder / "s"
        try:
            _require_short(path)
            self.address = f"unix:{quote(bytes(path))}"  # a URI
            self.control_handler = BeamFnControlServicer(descriptors)
            self.data_plane_handler = _Elements(UNTIMED)
            self._server = grpc.server(
                shared_unbounded_instance(), interceptors=(_WorkersAlone(self._ids),), options=OPTIONS
            )
            beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(self.control_handler, self._server)
            beam_fn_api_pb2_grpc.add_BeamFnDataServicer_to_server(self.data_plane_handler, self._server)
            beam_fn_api_pb2_grpc.add_BeamFnStateServicer_to_server(GrpcStateServicer(state), self._server)
            self._server.add_insecure_port(self.address)
            self._server.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def new_id(self) -> str:
        """Draw the id of a new worker, which is answered from now on."""
        worker_id = secrets.token_hex(ID_BYTES)
        self._ids.add(worker_id.encode())
        return worker_id

    def close(self) -> None:
        """End all calls and remove the socket."""
        self._ids.clear()
        self.control_handler.done()
        self._server.stop(CLOSING_SECONDS).wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Elements(BeamFnDataServicer):
    """Exchange elements with workers; one that is gone ends its stream, where Beam's thread would print a traceback."""

    def Data(self, elements: Iterator[Any], context: Any) -> Any:
        """Take a worker's elements, and return those for it."""
        return super().Data(_until_lost(elements), context)


def _until_lost(elements: Iterator[Any]) -> Iterator[Any]:
    with suppress(grpc.RpcError):
        yield from elements


class _WorkersAlone(grpc.ServerInterceptor):
    """Refuse a call, before its service is looked up, unless it carries the id of one worker."""

    def __init__(self, ids: set[bytes]) -> None:
        self._ids = ids
        self._refusal = grpc.stream_stream_rpc_method_handler(_refuse)  # it fits calls of every kind

    def intercept_service(self, continuation: Callable[[Any], Any], call: Any) -> Any:
        """Return the handler of the call: the service's, or the refusal."""
        given = [value for key, value in call.invocation_metadata if key == WORKER_ID]
        if len(given) == 1 and self._is_known(given[0].encode()):
            return continuation(call)
        return self._refusal

    def _is_known(self, given: bytes) -> bool:
        """Compare with every id in full: how long it takes says nothing about how much of a guess was right."""
        return sum(hmac.compare_digest(given, known) for known in tuple(self._ids)) > 0


def _refuse(_requests: Any, context: Any) -> None:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "only workers of this run are answered")


def _require_short(path: Path) -> None:
    if len(bytes(path)) > LONGEST_PATH:
        reason = f"is too long a path for the socket of worker processes: {len(bytes(path))} bytes of {LONGEST_PATH}"
        raise UsageError(Problem(str(path.parent.parent), reason, "set TMPDIR to a folder with a shorter path"))
