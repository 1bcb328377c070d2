"""Worker processes on this machine, forked from a process that has imported all modules, so that they start fast.

Beam itself starts Python anew for each worker of each stage, which often takes longer than the stage; and if such a
worker is killed, its driver waits for ever. Here the driver notices and fails the stage, which the same command
continues.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import GrpcWorkerHandler, WorkerHandler
from apache_beam.transforms.environments import Environment, python_sdk_capabilities

__all__ = ["PICKLER", "WORKER_LOST", "ForkedEnvironment", "prepare"]

URN = "das:env:forked:v1"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SHUTDOWN_SECONDS = 30.0
PICKLER = "cloudpickle"
"""How steps are serialised for workers; Beam's default is pure Python and often takes longer than the step."""
WORKER_LOST = "das: a worker process ended"
"""The error that tells the driver that a worker is gone, rather than that a step failed."""


class Pool:
    """Starts workers through :mod:`pipelines.workers.fork_server`, which lives as long as this process."""

    def __init__(self) -> None:
        self._fork_server = subprocess.Popen(
            [sys.executable, "-m", "pipelines.workers.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | ONE_THREAD,  # a worker per core, and a thread per worker
        )
        self._lock = threading.Lock()
        self._living: dict[str, Callable[[], None]] = {}
        threading.Thread(target=self._listen, name="das_pool", daemon=True).start()

    @property
    def is_open(self) -> bool:
        """Whether it can start workers."""
        return self._fork_server.poll() is None

    def start(self, environment: dict[str, str], ended: Callable[[], None]) -> None:
        """Start a worker, and call ``ended`` when its process has ended."""
        with self._lock:
            self._living[environment["WORKER_ID"]] = ended
            if self._fork_server.stdin is None:
                raise RuntimeError("the fork server has no standard input")
            self._fork_server.stdin.write(json.dumps(environment).encode() + b"\n")
            self._fork_server.stdin.flush()

    def _listen(self) -> None:
        for line in self._fork_server.stdout or ():
            self._end(line.decode().strip())
        for name in list(self._living):
            self._end(name)

    def _end(self, name: str) -> None:
        with self._lock:
            ended = self._living.pop(name, None)
        if ended is not None:
            ended()


_POOLS: list[Pool] = []


def _pool() -> Pool:
    """The pool of this process; a new one if its fork server was killed."""
    if not _POOLS or not _POOLS[-1].is_open:
        _POOLS[:] = [Pool()]
    return _POOLS[0]


def prepare() -> None:
    """Start the fork server early, so that its imports are done when the first stage begins."""
    _pool()


@Environment.register_urn(URN, None)
class ForkedEnvironment(Environment):
    """The environment, in Beam's sense, in which these workers run."""

    def __init__(self) -> None:
        super().__init__(capabilities=python_sdk_capabilities())

    def to_runner_api_parameter(self, context: Any) -> tuple[str, None]:
        """Return the name alone: the environment has no settings."""
        return URN, None

    @staticmethod
    def from_runner_api_parameter(*_: Any) -> ForkedEnvironment:
        """Return the environment, which has no settings."""
        return ForkedEnvironment()


@WorkerHandler.register_environment(URN, None)
class ForkedWorker(GrpcWorkerHandler):
    """The runner's handle of one worker process."""

    def __init__(self, _payload: None, state: Any, provision_info: Any, grpc_server: Any) -> None:
        super().__init__(state, provision_info, grpc_server)
        self._ended, self._unwanted = threading.Event(), threading.Event()
        reader = threading.Thread(name="das_control_read", target=self._read, daemon=True)
        self.control_conn._read_thread = reader

    def _read(self) -> None:
        """Read the worker's answers; if they stop because the worker is gone, :meth:`_watch` reports it."""
        with suppress(grpc.RpcError):
            self.control_conn._read()

    def start_worker(self) -> None:
        """Request a process."""
        environment = {
            "WORKER_ID": self.worker_id,
            "CONTROL_API_SERVICE_DESCRIPTOR": f'url: "{self.control_address}"',
            "PIPELINE_OPTIONS": json.dumps({"pickle_library": PICKLER}),
        }
        _pool().start(environment, self._ended.set)
        threading.Thread(target=self._watch, name="das_worker_watch", daemon=True).start()

    def _watch(self) -> None:
        """Once the process has ended, fail all its instructions, pending or new; Beam would wait for them."""
        self._ended.wait()
        while not self._unwanted.wait(0.2):
            for name, future in list(self.control_conn._futures_by_id.items()):
                future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=name, error=WORKER_LOST))

    def stop_worker(self) -> None:
        """Wait until the process has ended, as it does when the control channel is closed."""
        self._ended.wait(SHUTDOWN_SECONDS)
        self._unwanted.set()
