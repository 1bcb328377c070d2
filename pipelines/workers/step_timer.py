"""Time spent in our own steps, summed in Beam's metrics, which reach the driver from every runner.

The rest of a stage's time is Beam's: building and submitting the pipeline, encoding, grouping and copying elements,
starting workers, and waiting for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from time import perf_counter_ns, process_time_ns
from typing import Any

from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.metrics.metric import MetricResults

from das.runner import StepTime
from pipelines.workers.log import place_of, say
from pipelines.workers.progress import note_step

__all__ = ["PROGRESS", "count", "counters_of", "steps_of", "timed"]

NAMESPACE = "das.step_timer"
PROGRESS = "das"
"""The namespace of the counters that people watch on a runner's own page: how many shards and families are done."""
KINDS = ("calls", "seconds", "cpu_seconds")
NANO = 1e-9

Process = Callable[[Any, Any], Iterator[Any]]


def timed(name: Callable[[Any, Any], str]) -> Callable[[Process], Process]:
    """Measure the time that ``process`` takes, under a name made from the step and its element.

    Beam processes each value that a step yields before it asks for the next; the timer is stopped meanwhile.
    """

    def decorate(process: Process) -> Process:
        @wraps(process)
        def timed_process(self: Any, element: Any) -> Iterator[Any]:
            values, seconds, cpu = iter(process(self, element)), 0, 0
            while True:
                begun, begun_cpu = perf_counter_ns(), process_time_ns()
                try:
                    value = next(values)
                except StopIteration:
                    break
                except Exception as error:
                    say(f"{name(self, element)}: {type(error).__name__} at {place_of(error.__traceback__)}")
                    raise
                finally:
                    seconds += perf_counter_ns() - begun
                    cpu += process_time_ns() - begun_cpu
                yield value
            step = name(self, element)
            for kind, amount in zip(KINDS, (1, seconds, cpu), strict=True):
                _counter(f"{kind} {step}").inc(amount)
            if hasattr(self, "work"):  # a step of a stage, whose progress is watched
                note_step(self.work.partial, step)

        return timed_process

    return decorate


def count(name: str, amount: int = 1) -> None:
    """Count shards or families that are done; the geography decides how many there are, so the numbers are public."""
    _counter(name, PROGRESS).inc(amount)


@lru_cache(maxsize=1024)
def _counter(name: str, namespace: str = NAMESPACE) -> Any:
    return Metrics.counter(namespace, name)


def counters_of(results: MetricResults, namespace: str) -> list[tuple[str, int]]:
    """Names and values of a pipeline's counters; an empty list if the runner has no counters."""
    try:
        counters = results.query(MetricsFilter().with_namespace(namespace))[MetricResults.COUNTERS]
    except NotImplementedError:
        return []
    return [(counter.key.metric.name, counter.result) for counter in counters]


def steps_of(results: MetricResults) -> dict[str, StepTime]:
    """Read the step times of a finished pipeline; an empty dict from a runner without metrics."""
    sums_of: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(KINDS, 0))
    for counter, count in counters_of(results, NAMESPACE):
        kind, _, name = counter.partition(" ")
        sums_of[name][kind] += count
    return {
        name: StepTime(calls=sums["calls"], seconds=NANO * sums["seconds"], cpu_seconds=NANO * sums["cpu_seconds"])
        for name, sums in sorted(sums_of.items())
    }
