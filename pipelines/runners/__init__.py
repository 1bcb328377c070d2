"""Runners by name. No choice is left to a Beam default, which may download another runner.

``in-memory`` is one process; ``multi-process`` is one machine with a worker process per core; ``flink`` and ``spark``
are clusters behind a job server (:mod:`pipelines.runners.clusters`); any other name is one of Beam's runners, with the
options that Beam documents.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions, WorkerOptions
from apache_beam.runners import create_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner

from das.errors import Problem, UsageError
from pipelines.runners.cluster import Cluster
from pipelines.runners.clusters import CLUSTERS, FLINK
from pipelines.workers.process_pool import PICKLER, ForkedEnvironment, prepare

__all__ = ["RunnerOptions", "cluster_of", "is_elsewhere", "runner_and_options"]

RUNNER = "--runner="
IN_MEMORY = ("in-memory", "directrunner")
MULTI_PROCESS = "multi-process"


class RunnerOptions(PipelineOptions):
    """Options of job servers that Beam's Python does not list, and the token of :mod:`pipelines.workers.lifetime`."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--execution_mode_for_batch", help="Flink's: PIPELINED or BATCH_FORCED")
        parser.add_argument("--number_of_execution_retries", type=int, help="how often Flink tries again")
        parser.add_argument("--execution_retry_delay", type=int, help="milliseconds before it does")
        parser.add_argument("--das_lifetime_token", help=argparse.SUPPRESS)


def runner_and_options(arguments: Sequence[str]) -> tuple[PipelineRunner, PipelineOptions]:
    """Read Beam's options, as written after ``--`` on the command line.

    >>> runner, options = runner_and_options(["--runner=multi-process", "--direct_num_workers=2"])
    """
    # Beam logs the error of a step, which may quote data, so only das writes to the terminal.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    named = _named(arguments)
    others = [a for a in arguments if not a.startswith(RUNNER)]
    name = named.lower()
    defaults = {"pickle_library": PICKLER, **(CLUSTERS[name].options if name in CLUSTERS else {})}
    options = PipelineOptions([f"--{option}={value}" for option, value in defaults.items()] + others)
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
    log.default_sdk_harness_log_level = "ERROR"  # the highest level that Java has
    if name in CLUSTERS:
        return PortableRunner(), options
    options.view_as(StandardOptions).runner = named
    try:
        return create_runner(named), options
    except (ValueError, ImportError):
        known = ", ".join([IN_MEMORY[0], MULTI_PROCESS, *CLUSTERS, "DataflowRunner"])
        raise UsageError(Problem(f"--runner={named}", "is not a runner that can be used here", known)) from None


def is_elsewhere(arguments: Sequence[str]) -> bool:
    """Whether the work is done outside this process and its children: the workers may not see this machine's files.

    >>> is_elsewhere([]), is_elsewhere(["--runner=flink"])
    (False, True)
    """
    runner, _ = runner_and_options(arguments)
    return not isinstance(runner, FnApiRunner)


def cluster_of(arguments: Sequence[str]) -> Cluster:
    """The cluster that remedies name: the runner that was asked for, or Flink.

    >>> cluster_of(["--runner=Spark"]).start
    'bash scripts/spark up'
    """
    return CLUSTERS.get(_named(arguments).lower(), FLINK)


def _named(arguments: Sequence[str]) -> str:
    """The runner that was asked for; the last one, if several were."""
    return ([a.removeprefix(RUNNER) for a in arguments if a.startswith(RUNNER)] or [IN_MEMORY[0]])[-1]
