"""Runners by name. Nothing is left to a default that may go and download another runner.

``in-memory`` is one process; ``multi-process`` is one machine with a worker process per core; ``flink`` is a cluster
behind a job server (:mod:`pipelines.flink`); any other name is Beam's own, with its options as Beam documents them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions, WorkerOptions
from apache_beam.runners import create_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner

from das.errors import Problem, UsageError
from pipelines import flink
from pipelines.pool import PICKLER, ForkedEnvironment, prepare

__all__ = ["is_elsewhere", "runner_and_options"]

IN_MEMORY = ("in-memory", "directrunner")
MULTI_PROCESS = "multi-process"
FLINK = "flink"


def runner_and_options(arguments: Sequence[str]) -> tuple[PipelineRunner, PipelineOptions]:
    """Read Beam's options, as written after ``--`` on the command line.

    >>> runner, options = runner_and_options(["--runner=multi-process", "--direct_num_workers=2"])
    """
    # Beam logs what a step stumbled over, which may quote data: only das speaks to the user.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    named = [a.split("=", 1)[1] for a in arguments if a.startswith("--runner=")] or ["in-memory"]
    others = [a for a in arguments if not a.startswith("--runner=")]
    name = named[-1].lower()
    defaults = {"pickle_library": PICKLER} | dict(flink.DEFAULTS if name == FLINK else {})
    options = PipelineOptions(flink.as_arguments(defaults) + others)
    unknown = options.get_all_options(drop_default=True, retain_unknown_options=True).keys() - (
        options.get_all_options(drop_default=True).keys()
    )
    if unknown:
        raise UsageError(Problem(f"option --{sorted(unknown)[0]}", "is unknown to Beam", "see Beam's pipeline options"))
    log = options.view_as(WorkerOptions)
    log.default_sdk_harness_log_level = "CRITICAL"
    if name in IN_MEMORY:
        return FnApiRunner(), options
    if name == MULTI_PROCESS:
        direct = options.view_as(DirectOptions)
        if direct.direct_num_workers == 1:
            direct.direct_num_workers = os.cpu_count() or 1
        prepare()
        return FnApiRunner(default_environment=ForkedEnvironment()), options
    log.default_sdk_harness_log_level = "ERROR"  # Java knows nothing above
    if name == FLINK:
        return PortableRunner(), options
    options.view_as(StandardOptions).runner = named[-1]
    try:
        return create_runner(named[-1]), options
    except (ValueError, ImportError):
        known = ", ".join([IN_MEMORY[0], MULTI_PROCESS, FLINK, "SparkRunner", "DataflowRunner"])
        raise UsageError(Problem(f"--runner={named[-1]}", "is no runner that can be used here", known)) from None


def is_elsewhere(arguments: Sequence[str]) -> bool:
    """Whether the work is done by an engine of its own, which outlives this process and may not see its files.

    >>> is_elsewhere([]), is_elsewhere(["--runner=flink"])
    (False, True)
    """
    runner, _ = runner_and_options(arguments)
    return not isinstance(runner, FnApiRunner)
