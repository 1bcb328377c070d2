"""A worker process: Beam's own, with its output discarded.

Beam's worker writes its start, its end and the traceback of every failure to standard error. A traceback may quote
data, and the rest is of no use to the user. Problems reach the user through :mod:`pipelines.workers.errors`, and the
driver has the traceback for ``--debug``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

__all__ = ["main"]


def main(environment: Mapping[str, str]) -> None:
    """Run Beam's worker until the driver ends it.

    Parameters
    ----------
    environment
        The variables that Beam's worker reads from its environment. They are not put there: the worker's id, by which
        it proves to the driver who it is, would be passed on to every process that it starts.
    """
    logging.disable(logging.CRITICAL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    from apache_beam.runners.worker.sdk_worker_main import create_harness
    from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor

    # Beam's channel for state takes the id from here, where Beam sets it when the module is loaded.
    WorkerIdInterceptor._worker_id = environment["WORKER_ID"]
    _, harness, _ = create_harness(environment)
    harness.run()
