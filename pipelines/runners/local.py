"""Beam's runner for one machine, without Beam's servers: workers are this process, or forked ones behind Unix sockets.

Beam's runner keeps its workers in a ``WorkerHandlerManager``, which opens a server to every network interface for any
worker that is not the driver itself (:mod:`pipelines.workers.private_server` says what that server gives away).
:class:`LocalWorkers` takes its place. It is no subclass, so that it cannot inherit a server from another version of
Beam; and it knows two kinds of workers, neither of which has a network address.

Beam offers no way to name the manager: ``run_stages`` makes it by a global name of Beam's module. :class:`LocalRunner`
runs that very code with the name bound to :class:`LocalWorkers`; Beam's module itself stays as it is. A Beam whose
``run_stages`` makes its workers in another way is refused before anything is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from importlib.metadata import version
from types import FunctionType
from typing import Any

from apache_beam.portability.python_urns import EMBEDDED_PYTHON
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, fn_runner, worker_handlers
from apache_beam.runners.portability.fn_api_runner.worker_handlers import EmbeddedWorkerHandler, StateServicer

from das.errors import Problem, UsageError
from pipelines.workers.private_server import PrivateServer
from pipelines.workers.process_pool import FORKED, ForkedWorker

__all__ = ["LocalRunner", "LocalWorkers"]

MANAGER = "WorkerHandlerManager"
"""The global name by which ``run_stages`` makes the keeper of its workers."""


class LocalWorkers:
    """The workers of one pipeline, with the methods that Beam calls on its manager."""

    def __init__(self, environments: Mapping[str, Any], provision_info: Any) -> None:
        self.state_servicer = StateServicer()
        self._environments, self._provision_info = environments, provision_info
        self._process_bundle_descriptors: dict[str, Any] = {}  # the embedded worker reads it by this name
        self._workers: dict[str, list[Any]] = {}
        self._closing = ExitStack()
        self._server: PrivateServer | None = None

    def register_process_bundle_descriptor(self, descriptor: Any) -> None:
        """Remember the description of a step's work."""
        self._process_bundle_descriptors[descriptor.id] = descriptor

    def get_process_bundle_descriptor(self, request: Any) -> Any:
        """Return the description that a worker asks for."""
        return self._process_bundle_descriptors[request.process_bundle_descriptor_id]

    def get_worker_handlers(self, environment_id: str | None, num_workers: int) -> list[Any]:
        """Return that many workers of an environment, started; None stands for any environment."""
        name = next(iter(self._environments)) if environment_id is None else environment_id
        workers = self._workers.setdefault(name, [])
        while len(workers) < num_workers:
            worker = self._new_worker(self._environments[name])
            self._closing.callback(worker.close)
            workers.append(worker)
            worker.start_worker()
        return workers[:num_workers]

    def close_all(self) -> None:
        """End all workers, then the server."""
        self._workers.clear()
        self._closing.close()
        self._server = None

    def _new_worker(self, environment: Any) -> Any:
        info = self._provision_info.for_environment(environment)
        if environment.urn == EMBEDDED_PYTHON:
            return EmbeddedWorkerHandler(None, self.state_servicer, info, self)
        if environment.urn != FORKED:
            raise RuntimeError(f"no worker is started for the environment {environment.urn}")
        if self._server is None:
            self._server = PrivateServer(self.state_servicer, self)
            self._closing.callback(self._server.close)
        return ForkedWorker(self._server, self.state_servicer, info)


class LocalRunner(FnApiRunner):
    """Beam's runner for one machine, whose workers are :class:`LocalWorkers`."""

    def __init__(self, **arguments: Any) -> None:
        _require_known_beam()
        super().__init__(**arguments)

    def run_stages(self, stage_context: Any, stages: list[Any]) -> Any:
        """Run Beam's own method with :class:`LocalWorkers` under the name of Beam's manager."""
        method = FnApiRunner.run_stages
        names = {**method.__globals__, MANAGER: LocalWorkers}
        return FunctionType(method.__code__, names, closure=method.__closure__)(self, stage_context, stages)


def _require_known_beam() -> None:
    """Refuse a Beam that would not use :class:`LocalWorkers`, and so might open its own server."""
    code = FnApiRunner.run_stages.__code__
    manager = getattr(fn_runner, MANAGER, None)
    if MANAGER not in code.co_names or manager is not getattr(worker_handlers, MANAGER, object):
        reason = f"of version {version('apache-beam')} starts workers in a way that could open them to other users"
        raise UsageError(Problem("apache-beam", reason, "install the version of requirements.lock"))
