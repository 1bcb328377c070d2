"""What every stage needs: run its Beam pipeline, and know whether it already happened."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import apache_beam as beam

from das.errors import InputError, Problem, UsageError
from das.plan.plan import Plan
from das.runner import Progress
from das.storage.files import write_atomically
from das.storage.layout import ReleaseFolder
from das.storage.staging import committed, verify
from pipelines.runners import runner_and_options
from pipelines.runners.preflight import failure_of
from pipelines.workers.errors import raise_reported
from pipelines.workers.progress import watch_progress
from pipelines.workers.step_timer import steps_of

__all__ = ["PUBLIC", "StageRunner", "require_unchanged", "require_written"]

PUBLIC = 0o755


class StageRunner:
    """The stages of one run on one side of the wall; a subclass has a method for each of them."""

    def __init__(self, plan: Plan, release: ReleaseFolder, options: Sequence[str], progress: Progress) -> None:
        self.plan, self.release, self.options, self.progress = plan, release, options, progress
        self.spent: dict[str, dict[str, Any]] = {}

    def execute(
        self,
        stage: str,
        partials: tuple[Path, ...],
        build: Callable[[beam.Pipeline], None],
        steps: Mapping[str, int],
        shards: int,
    ) -> None:
        """Run a pipeline that writes into partial folders; raise what its workers reported.

        ``steps`` are the names of those steps whose elements show how far the stage is, and how many each will have.
        """
        begun = perf_counter()
        runner, options = runner_and_options(self.options)
        pipeline = beam.Pipeline(runner=runner, options=options)
        build(pipeline)
        result: Any = None
        try:
            with watch_progress(partials, steps, shards, lambda done: self.progress(stage, done, shards)):
                result = pipeline.run()
                result.wait_until_finish()
        except KeyboardInterrupt:
            _cancel(result)
            raise
        except Exception as error:
            _cancel(result)
            raise_reported(*partials)
            write_atomically(partials[0] / "room", bytes(4096))  # a worker on a full disk could not report its error
            raise failure_of(error, self.options) from error
        raise_reported(*partials)
        self.spent[stage] = {"pipeline_seconds": perf_counter() - begun, "steps": steps_of(result.metrics())}

    def happened(self, folder: Path, key: str) -> bool:
        """Whether a stage was done from the same things; if from others, its output is removed."""
        record = committed(folder)
        if record is not None and record["key"] == key:
            return True
        self.remove(folder)
        return False

    def remove(self, folder: Path) -> None:
        """Remove a stage's output, and the manifest that lists it."""
        if folder.exists():
            self.release.manifest.unlink(missing_ok=True)
            shutil.rmtree(folder)


def _cancel(job: Any) -> None:
    """Have a cluster end a job that nobody waits for any more; on this machine there is nothing left to end."""
    if job is not None:
        with suppress(Exception):
            job.cancel()


def require_unchanged(folder: Path) -> None:
    """A stage reads what the one before it made durable, and nothing that was damaged since."""
    changed = verify(folder)
    if changed:
        raise UsageError(changed)


def require_written(paths: Sequence[Path]) -> None:
    """Check that the files exist; a runner's success is not taken for granted."""
    missing = [path for path in paths if not path.exists()]
    if missing:
        remedy = "use another runner; this one lost work without saying so"
        raise InputError(Problem(missing[0].name, f"{len(missing)} files were not written by the runner", remedy))
