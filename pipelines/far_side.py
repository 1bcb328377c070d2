"""The far side of the wall: a process that is started before any record is read, and confined before it works.

It is forked from a process that has imported all modules and holds no data. What it is to do arrives through a pipe,
and what it reports comes back through another.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from das.plan.plan import Plan
from das.records.read import files_matching, public_files
from das.runner import Progress, Stopwatch
from das.storage.layout import Layout
from das.storage.run_identity import ledger_path
from pipelines.public_stages import PublicWork, run_public_stages
from pipelines.runners import is_multi_process
from pipelines.wall.confinement import Confinement
from pipelines.workers import process_pool, remote_call
from pipelines.workers.forking import ForkServer

__all__ = ["FarSide", "confinement_of"]

_STARTED: list[ForkServer] = []


@dataclass(frozen=True, slots=True)
class FarSide:
    """A process to be, on the far side of the wall."""

    server: ForkServer

    @classmethod
    @contextmanager
    def opened(cls, options: Sequence[str]) -> Iterator[FarSide]:
        """Make the process from which the far side will be forked, while this one holds no data."""
        if is_multi_process(options):
            yield cls(process_pool.server())
        elif threading.active_count() == 1:
            with ForkServer.forked() as server:
                yield cls(server)
        else:  # another thread may hold a lock at this moment, which a fork would copy
            if not _STARTED or not _STARTED[0].is_open:
                _STARTED[:] = [ForkServer.started(one_thread=False)]
            yield cls(_STARTED[0])

    def run(self, work: PublicWork, confinement: Confinement, *, progress: Progress, stopwatch: Stopwatch) -> None:
        """Run the public stages there; raise here what they raise."""
        remote_call.call(
            self.server.call(), run_public_stages, work, confinement, progress=progress, stopwatch=stopwatch
        )


@contextmanager
def confinement_of(plan: Plan, layout: Layout, *, network: bool) -> Iterator[Confinement]:
    """What the public stages of a run may open, with a private folder for their temporary files."""
    records = [match.resolve() for pattern in plan.settings.input.files for match in files_matching(plan, pattern)]
    confidential = (layout.confidential.path.resolve(), *records, ledger_path(plan).resolve())
    with tempfile.TemporaryDirectory(prefix="das-", ignore_cleanup_errors=True) as temporary:
        yield Confinement(
            release=layout.release.path.resolve(),
            temporary=Path(temporary).resolve(),
            public=tuple(public_files(plan)),
            hidden=confidential,
            network=network,
        )
