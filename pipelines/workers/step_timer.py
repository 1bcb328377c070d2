"""How long our own steps take: Beam's metrics carry the sums home from wherever the steps ran.

What a stage takes beyond its steps is Beam's: building and moving the pipeline, encoding, grouping and copying
elements, starting workers, and waiting for them.
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

__all__ = ["counters_of", "steps_of", "timed"]

NAMESPACE = "das.clock"
KINDS = ("calls", "seconds", "cpu_seconds")
NANO = 1e-9

Process = Callable[[Any, Any], Iterator[Any]]


def timed(name: Callable[[Any, Any], str]) -> Callable[[Process], Process]:
    """Count the time that ``process`` takes, under the name that is made of the step and its element.

    A step hands on each thing it yields, and Beam works on that before it asks for the next: the clock stands still
    meanwhile.
    """

    def around(process: Process) -> Process:
        @wraps(process)
        def timed_process(self: Any, element: Any) -> Iterator[Any]:
            work, seconds, cpu = iter(process(self, element)), 0, 0
            while True:
                begun, begun_cpu = perf_counter_ns(), process_time_ns()
                try:
                    made = next(work)
                except StopIteration:
                    break
                finally:
                    seconds += perf_counter_ns() - begun
                    cpu += process_time_ns() - begun_cpu
                yield made
            for kind, value in zip(KINDS, (1, seconds, cpu), strict=True):
                _counter(f"{kind} {name(self, element)}").inc(value)

        return timed_process

    return around


@lru_cache(maxsize=1024)
def _counter(name: str) -> Any:
    return Metrics.counter(NAMESPACE, name)


def counters_of(results: MetricResults, namespace: str) -> list[tuple[str, int]]:
    """Names and counts of a pipeline's counters: none from a runner that keeps none, as some of Beam's do not."""
    try:
        found = results.query(MetricsFilter().with_namespace(namespace))[MetricResults.COUNTERS]
    except NotImplementedError:
        return []
    return [(counter.key.metric.name, counter.result) for counter in found]


def steps_of(results: MetricResults) -> dict[str, StepTime]:
    """Read the sums of a pipeline that has ended; a runner without metrics has none."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(KINDS, 0))
    for counter, count in counters_of(results, NAMESPACE):
        kind, _, name = counter.partition(" ")
        found[name][kind] += count
    return {
        name: StepTime(calls=sums["calls"], seconds=NANO * sums["seconds"], cpu_seconds=NANO * sums["cpu_seconds"])
        for name, sums in sorted(found.items())
    }
