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

from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
    WorkerOptions,
)
from apache_beam.runners import create_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner

from das.errors import Problem, UsageError
from pipelines.runners.cluster import Cluster
from pipelines.runners.clusters import CLUSTERS, FLINK
from pipelines.runners.local import LocalRunner
from pipelines.runners.private_network import PrivateNetwork
from pipelines.workers import process_pool
from pipelines.workers.process_pool import PICKLER, ForkedEnvironment

__all__ = [
    "MULTI_PROCESS",
    "RunnerOptions",
    "cluster_of",
    "is_elsewhere",
    "is_multi_process",
    "name_of",
    "private_network_of",
    "runner_and_options",
]

RUNNER = "--runner="
IN_MEMORY = ("in-memory", "directrunner")
MULTI_PROCESS = "multi-process"
BEAM_WORKERS = "in_memory"
"""The only one of Beam's own ways to run local workers that opens no port."""


class RunnerOptions(PipelineOptions):
    """Options of job servers that Beam's Python does not list, and what das tells its own workers."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--execution_mode_for_batch", help="Flink's: PIPELINED or BATCH_FORCED")
        parser.add_argument("--number_of_execution_retries", type=int, help="how often Flink tries again")
        parser.add_argument("--execution_retry_delay", type=int, help="milliseconds before it does")
        parser.add_argument(
            "--trust-network", action="store_true", help="use a runner that is not in a private network"
        )
        parser.add_argument(
            "--preflight_seconds", type=int, default=300, help="how long workers may take to answer before a run"
        )
        parser.add_argument("--das_lifetime_token", help=argparse.SUPPRESS)
        parser.add_argument("--das_confinement", help=argparse.SUPPRESS)


def runner_and_options(arguments: Sequence[str]) -> tuple[PipelineRunner, PipelineOptions]:
    """Read Beam's options, as written after ``--`` on the command line.

    >>> runner, options = runner_and_options(["--runner=multi-process", "--direct_num_workers=2"])
    """
    # Beam logs the error of a step, which may quote data, so only das writes to the terminal.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    named = name_of(arguments)
    others = [a for a in arguments if not a.startswith(RUNNER)]
    name = named.lower()
    # Beam's cache of requirements has one name in the shared temporary folder, where another user may plant a link.
    defaults = {
        "pickle_library": PICKLER,
        "requirements_cache": "skip",
        **(CLUSTERS[name].options if name in CLUSTERS else {}),
    }
    options = PipelineOptions([f"--{option}={value}" for option, value in defaults.items()] + others)
    unknown = options.get_all_options(drop_default=True, retain_unknown_options=True).keys() - (
        options.get_all_options(drop_default=True).keys()
    )
    if unknown:
        raise UsageError(Problem(f"option --{sorted(unknown)[0]}", "is unknown to Beam", "see Beam's pipeline options"))
    if options.view_as(DirectOptions).direct_running_mode != BEAM_WORKERS:
        reason = "would start workers that Beam connects through ports which are open to everybody"
        raise UsageError(Problem("option --direct_running_mode", reason, "use --runner=multi-process"))
    log = options.view_as(WorkerOptions)
    log.default_sdk_harness_log_level = "CRITICAL"
    if name in IN_MEMORY:
        return LocalRunner(), options
    if name == MULTI_PROCESS:
        direct = options.view_as(DirectOptions)
        if direct.direct_num_workers == 1:
            direct.direct_num_workers = os.cpu_count() or 1
        process_pool.server()  # start it early, so that its imports are done when the first stage begins
        return LocalRunner(default_environment=ForkedEnvironment()), options
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


def is_multi_process(arguments: Sequence[str]) -> bool:
    """Whether the work is done by worker processes of this machine.

    >>> is_multi_process(["--runner=multi-process"])
    True
    """
    return name_of(arguments).lower() == MULTI_PROCESS


def private_network_of(arguments: Sequence[str]) -> PrivateNetwork | None:
    """The private network in which the runner is; None if it is in none of this machine.

    >>> private_network_of(["--runner=in-memory"])
    """
    _, options = runner_and_options(arguments)
    endpoint = options.view_as(PortableOptions).job_endpoint
    for cluster in CLUSTERS.values():
        if endpoint == cluster.job_endpoint and cluster.network.pid is not None:
            return cluster.network
    return None


def cluster_of(arguments: Sequence[str]) -> Cluster:
    """The cluster that remedies name: the runner that was asked for, or Flink.

    >>> cluster_of(["--runner=Spark"]).start
    'bash scripts/spark up'
    """
    return CLUSTERS.get(name_of(arguments).lower(), FLINK)


def name_of(arguments: Sequence[str]) -> str:
    """The runner that was asked for; the last one, if several were.

    >>> name_of(["--runner=multi-process", "--runner=Flink"])
    'Flink'
    """
    return ([a.removeprefix(RUNNER) for a in arguments if a.startswith(RUNNER)] or [IN_MEMORY[0]])[-1]
