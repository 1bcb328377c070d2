"""Apache Flink through Beam's job server: a runner named ``flink``, whose defaults try again what a lost worker held.

Batch jobs run with blocking exchanges (``BATCH_FORCED``): what a lost TaskManager held is computed again, and nothing
else. A failed bundle is tried again after a pause. Neither draws new noise; see :mod:`pipelines.measure`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.cluster import JOB_ENDPOINT

__all__ = ["DEFAULTS", "FlinkOptions", "as_arguments"]

DEFAULTS: Mapping[str, str] = {
    "job_endpoint": JOB_ENDPOINT,
    "environment_type": "PROCESS",
    "environment_config": json.dumps({"command": str(Path(sys.executable).with_name("das-worker"))}),
    "environment_cache_millis": "3000",  # one worker for all steps of a stage, instead of one each
    "parallelism": "2",
    "execution_mode_for_batch": "BATCH_FORCED",
    "number_of_execution_retries": "6",
    "execution_retry_delay": "6000",  # milliseconds: a worker that died must have left the cache before the next try
}
"""What ``--runner=flink`` adds to Beam's own defaults; an option on the command line takes precedence."""


class FlinkOptions(PipelineOptions):
    """Options of the job server that Beam's Python does not list, and the lease of :mod:`pipelines.lease`."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--execution_mode_for_batch", help="Flink's: PIPELINED or BATCH_FORCED")
        parser.add_argument("--number_of_execution_retries", type=int, help="how often Flink tries again")
        parser.add_argument("--execution_retry_delay", type=int, help="milliseconds before it does")
        parser.add_argument("--das_lease", help=argparse.SUPPRESS)


def as_arguments(options: Mapping[str, str]) -> list[str]:
    """Write options as on a command line.

    >>> as_arguments({"parallelism": "2"})
    ['--parallelism=2']
    """
    return [f"--{name}={value}" for name, value in options.items()]
