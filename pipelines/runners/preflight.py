"""Preflight: check that a runner can do the work, before the first noise is drawn.

A small job runs where the large ones will run, with several elements for each worker. Each worker reports its versions,
its user, whether it sees the output folder and can write there, and which input files it cannot read. The reports are
names of Beam's counters: those reach the driver even from a machine that shares no file with it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import apache_beam as beam
import click
import grpc
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions, PortableOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.runner import PipelineState

from das.errors import Interrupted, Problem, UsageError
from pipelines.runners import (
    MULTI_PROCESS,
    RunnerOptions,
    cluster_of,
    is_elsewhere,
    name_of,
    private_network_of,
    runner_and_options,
)
from pipelines.runners.cluster import Cluster
from pipelines.runners.clusters import CLUSTERS
from pipelines.runners.exposure import checklist, refusal
from pipelines.runners.jars import BEAM
from pipelines.workers.lifetime import token_in
from pipelines.workers.process_pool import CHANNEL_LOST, WORKER_LOST
from pipelines.workers.step_timer import counters_of

__all__ = ["failure_of", "ready_runner"]

NAMESPACE = "das.preflight"
PACKAGES = ("das", "apache-beam", "numpy", "scipy", "pyarrow", "ortools", "numba")
"""Packages that must have the same version everywhere: another may give other bytes, or fail."""
EMBEDDED = "embed"
"""Beam's name for a job server within this process."""
JOB_THREADS = ("wait_until_finish", "_run_job")
"""Beam's names for the threads that follow a job or run it; their tracebacks are not shown."""
CONNECT_SECONDS = 5
DESCRIBE_SECONDS = 30
ELEMENTS_PER_WORKER = 8
"""How many elements of the small job there are for each slot, so that none is left out."""


def versions() -> dict[str, str]:
    """Versions of Python and of the packages in this process.

    >>> sorted(versions())[:2]
    ['Python', 'apache-beam']
    """
    return {"Python": "{}.{}".format(*sys.version_info)} | {package: version(package) for package in PACKAGES}


class ReportWorker(beam.DoFn):
    """Report a worker's versions and user, whether it can write in the output folder, and what input it cannot read."""

    def __init__(self, out: str, probe: str, inputs: Sequence[str] = ()) -> None:
        self.out, self.probe, self.inputs = out, probe, tuple(inputs)

    def process(self, number: int) -> Iterator[tuple[int, int]]:
        """Count one more report like this, and yield an element to be grouped."""
        folder = Path(self.out)
        report = versions() | {
            "host": socket.gethostname(),
            "uid": str(os.geteuid()),
            "sees": str((folder / self.probe).exists()),
            "writes": str(_writes(folder / f"{self.probe}-{uuid.uuid4().hex}")),
            "unread": next((name for name in self.inputs if not os.access(name, os.R_OK)), ""),
        }
        Metrics.counter(NAMESPACE, json.dumps(report, sort_keys=True)).inc()
        yield number % 2, number


def _writes(path: Path) -> bool:
    """Whether a file can be made here, written to the disk, and removed."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
    except OSError:
        return False
    return True


class ReportGroup(beam.DoFn):
    """Report how many elements were grouped."""

    def process(self, element: tuple[int, Sequence[int]]) -> Iterator[int]:
        """Count one more group of this size."""
        Metrics.counter(NAMESPACE, f"group of {len(set(element[1]))}").inc()
        yield element[0]


@contextmanager
def beam_silenced() -> Iterator[None]:
    """Keep Beam from printing a job's messages: a step's traceback may quote data, and problems come as files.

    Beam's thread that reads a job's messages logs them, and ends with a traceback when the job server does; a job
    server within this process ends with the traceback of the step.
    """
    before, hook = logging.root.manager.disable, threading.excepthook

    def ignore_job_threads(ended: threading.ExceptHookArgs) -> None:
        if ended.thread is None or not any(name in ended.thread.name for name in JOB_THREADS):
            hook(ended)

    logging.disable(logging.CRITICAL)
    threading.excepthook = ignore_job_threads
    try:
        yield
    finally:
        logging.disable(before)
        threading.excepthook = hook


@contextmanager
def ready_runner(
    arguments: Sequence[str], out: Path, inputs: Callable[[], Sequence[Path]] = tuple
) -> Iterator[Sequence[str]]:
    """Check a runner and bind its workers to this run; yields the arguments with which to use it.

    ``inputs`` lists the files that workers will read; it is asked only where they are elsewhere.
    """
    if is_elsewhere(arguments):
        with beam_silenced(), token_in(out) as token:
            bound = [*arguments, f"--das_lifetime_token={token}"]
            _require_fit(bound, out, inputs())
            yield bound
    else:
        yield arguments


def _require_fit(arguments: Sequence[str], out: Path, inputs: Sequence[Path] = ()) -> None:
    """Raise a UsageError that names the remedy if the runner cannot be reached or is not fit for this run."""
    _, options = runner_and_options(arguments)
    endpoint = options.view_as(PortableOptions).job_endpoint
    for cluster in CLUSTERS.values():
        if endpoint == cluster.job_endpoint:
            _require_same_beam(cluster)
    if name_of(arguments).lower() in CLUSTERS and version("apache-beam") != BEAM:
        reason = f"is {version('apache-beam')} here, and the clusters' job servers are of {BEAM}"
        remedy = (
            f"install the version of requirements.lock, or use --runner={MULTI_PROCESS}, which takes newer releases too"
        )
        raise UsageError(Problem("apache-beam", reason, remedy))
    if endpoint and endpoint != EMBEDDED:
        _require_job_server(endpoint, cluster_of(arguments))
    _require_closed(arguments, out)
    probe = out / f".probe-{uuid.uuid4().hex}"
    probe.touch(mode=0o600)
    try:
        counted = _probe(arguments, out, probe.name, inputs)
    finally:
        probe.unlink(missing_ok=True)
    reports = [json.loads(name) for name in counted if name.startswith("{")]
    problems = sorted({problem for report in reports for problem in _unfit(report, out)}, key=str)
    if (
        not problems
        and reports
        and {name for name in counted if not name.startswith("{")} != {f"group of {_elements(options) // 2}"}
    ):
        problems = [Problem("the runner", "did not group a small job's elements", "use another version of it")]
    if problems:
        raise UsageError(problems)


def _require_same_beam(cluster: Cluster) -> None:
    """Refuse this machine's job server if it has another release of Beam; one elsewhere does not report its release."""
    runs, ours = cluster.beam_that_runs(), version("apache-beam")
    if runs not in (None, ours):
        remedy = f"stop it with `{cluster.stop}`, run `bash scripts/setup`, then `{cluster.start}`"
        raise UsageError(Problem("the job server", f"is of Beam {runs}, and apache-beam here is {ours}", remedy))


def _require_job_server(endpoint: str, cluster: Cluster) -> None:
    host, _, port = endpoint.rpartition(":")
    where, remedy = f"--job_endpoint={endpoint}", f"start one with `{cluster.start}`, or name another"
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError):
        raise UsageError(Problem(where, "no job server can be reached there", remedy)) from None
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        try:
            service.DescribePipelineOptions(beam_job_api_pb2.DescribePipelineOptionsRequest(), timeout=DESCRIBE_SECONDS)
        except grpc.RpcError:
            reason = "what listens there is not a Beam job server, or not one of a supported version"
            raise UsageError(Problem(where, reason, remedy)) from None


def _require_closed(arguments: Sequence[str], out: Path) -> None:
    """Refuse a runner outside a private network, and say what must be closed; only say it if the network is trusted."""
    network = private_network_of(arguments)
    if network and network.is_here:
        return
    _, options = runner_and_options(arguments)
    endpoint, cluster = options.view_as(PortableOptions).job_endpoint, cluster_of(arguments)
    checks = checklist(None if endpoint == EMBEDDED else endpoint, cluster.name, out)
    if not options.view_as(RunnerOptions).trust_network:
        raise UsageError(refusal(name_of(arguments), cluster.start), (check.problem() for check in checks))
    for check in checks:
        click.echo(f"das: {check.problem()}", err=True)


def _elements(options: PipelineOptions) -> int:
    """How many elements the small job has; an even number."""
    return ELEMENTS_PER_WORKER * max(1, int(options.view_as(FlinkRunnerOptions).parallelism))


def _probe(arguments: Sequence[str], out: Path, probe: str, inputs: Sequence[Path] = ()) -> set[str]:
    """Run the small job; return the names of its counters."""
    runner, options = runner_and_options(arguments)
    seconds = options.view_as(RunnerOptions).preflight_seconds
    pipeline = beam.Pipeline(runner=runner, options=options)
    worker = ReportWorker(str(out.resolve()), probe, [str(path.resolve()) for path in inputs])
    report = beam.ParDo(worker).with_output_types(tuple[int, int])
    _ = (
        pipeline
        | beam.Create(range(_elements(options)))
        | beam.Reshuffle()
        | report
        | beam.GroupByKey()
        | beam.ParDo(ReportGroup())
    )
    try:
        result = pipeline.run()
        state = result.wait_until_finish(duration=1000 * seconds)
    except Exception as error:
        message = f"{error.code()}" if isinstance(error, grpc.RpcError) else str(error).strip().splitlines()[0]
        remedy = "see that das of the same version is installed where the workers run, and look at the runner's log"
        reason = f"failed a small job: {message[-300:]}"  # which holds no data
        raise UsageError(Problem("the runner", reason, remedy)) from error
    if not PipelineState.is_terminal(state):
        result.cancel()
        reason = f"did not do a small job within {seconds} s"
        remedy = (
            f"see that it has free workers (`{cluster_of(arguments).start}` starts what is missing), "
            "or allow more with --preflight_seconds=N"
        )
        raise UsageError(Problem("the runner", reason, remedy))
    # A runner without counters reports nothing about its workers; then the success of the job must do.
    return {name for name, _ in counters_of(result.metrics(), NAMESPACE)}


def _unfit(report: dict[str, str], out: Path) -> Iterator[Problem]:
    where = f"worker on {report.pop('host')}"
    if report.pop("sees") != "True":
        remedy = "choose a folder that this machine and all workers share under the same path"
        yield Problem(where, f"does not see the output folder {out}", remedy)
    elif report.pop("writes", "True") != "True":
        remedy = "let the user who runs the workers write there, and see that the disk is not full"
        yield Problem(where, f"cannot write in the output folder {out}", remedy)
    uid = report.pop("uid", str(os.geteuid()))
    if uid != str(os.geteuid()):
        remedy = "run workers as the user who runs das: the key and the confidential folder are open to that user alone"
        yield Problem(where, f"runs as user {uid}, and das as user {os.geteuid()}", remedy)
    unread = report.pop("unread", "")
    if unread:
        yield Problem(where, f"cannot read the input file {unread}", "give workers the input under the same path")
    for name, ours in versions().items():
        if report.get(name) != ours:
            remedy = "install requirements.lock of the same checkout there, with the same Python"
            yield Problem(where, f"has {name} {report.get(name)}, and this machine {ours}", remedy)


def failure_of(error: Exception, arguments: Sequence[str] = ()) -> Exception:
    """The error to raise for a failed job: its own, unless the runner failed rather than a step."""
    if WORKER_LOST in str(error) or CHANNEL_LOST in str(error):
        remedy = "run the same command again; with fewer workers (--direct_num_workers) if memory was short"
        return Interrupted(Problem("a worker process", "was ended before its work was done", remedy))
    if isinstance(error, grpc.RpcError | grpc.FutureTimeoutError | ConnectionError):  # also between two stages
        reason = "stopped answering while a stage ran"
    elif "failed in state" in str(error) and "Traceback" not in str(error):
        reason = "gave a stage up"
    else:
        return error
    remedy = (
        f"see that it runs (`{cluster_of(arguments).start}` starts what is missing), then run the same command again"
    )
    return Interrupted(Problem("the runner", reason, remedy))
