"""Replications of the studies of coverage on all cores: one pool for all rows, each told as soon as it is finished."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

__all__ = ["Finished", "Row", "pool_of_processes", "row", "submitted"]

Row = dict[str, Any]
Finished = Callable[[Row], None]
"""Told each row when it is finished, so that an interruption loses little."""


@contextmanager
def pool_of_processes() -> Iterator[Executor]:
    """A process a core; what waits is not begun any more when the caller gives up."""
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(len(os.sched_getaffinity(0)), spawn, one_thread_each)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def one_thread_each() -> None:
    """Keep numerical libraries to one thread: processes use all cores already, and the matrices are small.

    A limit holds only for libraries that are loaded, so they are loaded first.
    """
    import numpy  # noqa: F401
    import scipy.linalg
    import scipy.optimize  # noqa: F401

    threadpool_limits(1)


def submitted(
    pool: Executor, replicate: Callable[..., Any], chunks: Mapping[str, Sequence[tuple[Any, ...]]]
) -> dict[str, list[Future[Any]]]:
    """Hand all chunks of all studies to the pool, so that no core waits for the end of a study."""
    return {name: [pool.submit(replicate, *each) for each in of_study] for name, of_study in chunks.items()}


def row(name: str, coverage: float, replications: int, nominal: float, **more: Any) -> Row:
    """One row: what was covered, how often, of how many; ``more`` is what a study says besides."""
    return {"name": name, "coverage": coverage, "replications": replications, "nominal": nominal, **more}
