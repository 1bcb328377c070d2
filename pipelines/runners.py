"""Runners by name. Nothing is left to a default that may go and download another runner.

``in-memory`` is one process; ``multi-process`` is one machine with a worker process per core; any other name is
Beam's own, with its options as Beam documents them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners import create_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner

from das.errors import Problem, UsageError

__all__ = ["runner_and_options"]

LOCAL = {"in-memory": "in_memory", "directrunner": "in_memory", "multi-process": "multi_processing"}


def runner_and_options(arguments: Sequence[str]) -> tuple[PipelineRunner, PipelineOptions]:
    """Read Beam's options, as written after ``--`` on the command line.

    >>> runner, options = runner_and_options(["--runner=multi-process", "--direct_num_workers=2"])
    """
    logging.getLogger("apache_beam").setLevel(logging.ERROR)
    named = [a.split("=", 1)[1] for a in arguments if a.startswith("--runner=")] or ["in-memory"]
    others = [a for a in arguments if not a.startswith("--runner=")]
    name = named[-1].lower()
    options = PipelineOptions(others)
    unknown = options.get_all_options(drop_default=True, retain_unknown_options=True).keys() - (
        options.get_all_options(drop_default=True).keys()
    )
    if unknown:
        raise UsageError(Problem(f"option --{sorted(unknown)[0]}", "is unknown to Beam", "see Beam's pipeline options"))
    if name in LOCAL:
        direct = options.view_as(DirectOptions)
        direct.direct_running_mode = LOCAL[name]
        if LOCAL[name] == "multi_processing" and direct.direct_num_workers == 1:
            direct.direct_num_workers = os.cpu_count() or 1
        return FnApiRunner(), options
    options.view_as(StandardOptions).runner = named[-1]
    try:
        return create_runner(named[-1]), options
    except (ValueError, ImportError):
        known = ", ".join(["in-memory", "multi-process", "FlinkRunner", "SparkRunner", "DataflowRunner"])
        raise UsageError(Problem(f"--runner={named[-1]}", "is no runner that can be used here", known)) from None
