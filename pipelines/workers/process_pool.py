"""Worker processes on this machine, forked from one that has imported everything: a stage starts them in no time.

Beam's own way is to start Python anew for each worker of each stage, which takes longer than many a stage; and if such
a worker is killed, its driver waits for ever. Here the driver learns of it and fails the stage, which the same command
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
"""How steps reach workers; Beam's default, written in Python alone, takes longer than many a step."""
WORKER_LOST = "das: a worker process ended"
"""The error by which a driver knows that a worker is gone, rather than that a step failed."""


class Pool:
    """Starts workers by asking :mod:`pipelines.workers.fork_server`, which lives as long as this process."""

    def __init__(self) -> None:
        self._forker = subprocess.Popen(
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
        return self._forker.poll() is None

    def start(self, environment: dict[str, str], ended: Callable[[], None]) -> None:
        """Start a worker, and call ``ended`` when it is no more."""
        with self._lock:
            self._living[environment["WORKER_ID"]] = ended
            if self._forker.stdin is None:
                raise RuntimeError("the pool has no way to be asked")
            self._forker.stdin.write(json.dumps(environment).encode() + b"\n")
            self._forker.stdin.flush()

    def _listen(self) -> None:
        for line in self._forker.stdout or ():
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
    """The process's pool; another, if somebody killed it."""
    if not _POOLS or not _POOLS[-1].is_open:
        _POOLS[:] = [Pool()]
    return _POOLS[0]


def prepare() -> None:
    """Begin to import, so that the first stage need not wait as long."""
    _pool()


@Environment.register_urn(URN, None)
class ForkedEnvironment(Environment):
    """Beam's name for where such workers run."""

    def __init__(self) -> None:
        super().__init__(capabilities=python_sdk_capabilities())

    def to_runner_api_parameter(self, context: Any) -> tuple[str, None]:
        """There is only one of its kind."""
        return URN, None

    @staticmethod
    def from_runner_api_parameter(*_: Any) -> ForkedEnvironment:
        """There is only one of its kind."""
        return ForkedEnvironment()


@WorkerHandler.register_environment(URN, None)
class ForkedWorker(GrpcWorkerHandler):
    """What the runner holds of one worker process."""

    def __init__(self, _payload: None, state: Any, provision_info: Any, grpc_server: Any) -> None:
        super().__init__(state, provision_info, grpc_server)
        self._ended, self._unwanted = threading.Event(), threading.Event()
        reader = threading.Thread(name="das_control_read", target=self._read, daemon=True)
        self.control_conn._read_thread = reader

    def _read(self) -> None:
        """Read what the worker answers; that it stops because the worker is gone is told by :meth:`_watch`."""
        with suppress(grpc.RpcError):
            self.control_conn._read()

    def start_worker(self) -> None:
        """Ask for a process."""
        environment = {
            "WORKER_ID": self.worker_id,
            "CONTROL_API_SERVICE_DESCRIPTOR": f'url: "{self.control_address}"',
            "PIPELINE_OPTIONS": json.dumps({"pickle_library": PICKLER}),
        }
        _pool().start(environment, self._ended.set)
        threading.Thread(target=self._watch, name="das_worker_watch", daemon=True).start()

    def _watch(self) -> None:
        """Once the process has ended, let fail what it was asked or will be; Beam would wait for it."""
        self._ended.wait()
        while not self._unwanted.wait(0.2):
            for name, future in list(self.control_conn._futures_by_id.items()):
                future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=name, error=WORKER_LOST))

    def stop_worker(self) -> None:
        """Wait until the process has ended, as it does when the control channel is closed."""
        self._ended.wait(SHUTDOWN_SECONDS)
        self._unwanted.set()
