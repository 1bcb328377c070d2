"""Apache Flink: a JobManager and two TaskManagers, and defaults that recompute what a lost worker held.

Batch jobs run with blocking exchanges (``BATCH_FORCED``): what a lost TaskManager held is computed again, and nothing
else. A failed bundle is tried again after a pause. Neither draws new noise; see :mod:`pipelines.stages.measure`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pipelines.runners.cluster import WORKER, Cluster, Process
from pipelines.runners.jars import Distribution

__all__ = ["TASK_MANAGERS", "Flink"]

REST = "localhost:8081"
RPC = "localhost:6123"
RUNTIME = "org.apache.flink.runtime"
TASK_MANAGER = f"{RUNTIME}.taskexecutor.TaskManagerRunner"
TASK_MANAGERS = ("taskmanager-1", "taskmanager-2")

CONFIG: Mapping[str, object] = {
    "jobmanager.rpc.address": "localhost",
    "jobmanager.rpc.port": int(RPC.split(":")[1]),
    "jobmanager.bind-host": "localhost",
    "rest.address": "localhost",
    "rest.bind-address": "localhost",
    "rest.port": int(REST.split(":")[1]),
    "taskmanager.host": "localhost",
    "taskmanager.bind-host": "localhost",
    # Two slots each, and two in use: work spreads over both TaskManagers, and one alone can finish it.
    "taskmanager.numberOfTaskSlots": 2,
    "taskmanager.load-balance.mode": "SLOTS",
    "parallelism.default": 2,
    "taskmanager.cpu.cores": 1.0,
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "64m",
    "taskmanager.memory.task.heap.size": "512m",
    "taskmanager.memory.task.off-heap.size": "64m",
    "taskmanager.memory.managed.size": "256m",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "128m",
    "taskmanager.memory.jvm-overhead.max": "128m",
    "classloader.resolve-order": "parent-first",  # Beam's classes are loaded once, and not with each job
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 6,
    "restart-strategy.fixed-delay.delay": "6 s",  # overrides the job's own; must exceed the workers' cache
    "heartbeat.interval": 3000,
    "heartbeat.timeout": 30000,
    "slot.request.timeout": 60000,
}


class Flink(Cluster):
    """Flink on this machine."""

    distribution = Distribution(
        cluster="Flink",
        version="1.19.3",
        package="apache-flink-libraries",
        package_sha256="4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60",
        wanted=("flink-dist-", "log4j-"),
        runner="beam-runners-flink-1.19",
        excluded=("org.apache.flink", "org.slf4j"),
        jars_sha256="d4fd4b0b079a416cb20fb68aa81275a1df8460289f410fa1b2c0e6b5603bb6d4",
    )
    job_endpoint = "localhost:8099"
    options: ClassVar[Mapping[str, str]] = {
        "job_endpoint": job_endpoint,
        **WORKER,
        "parallelism": "2",
        "execution_mode_for_batch": "BATCH_FORCED",
        "number_of_execution_retries": "6",
        "execution_retry_delay": "6000",  # milliseconds: a worker that died must have left the cache by then
    }

    def processes(self) -> tuple[Process, ...]:
        """Name the JobManager, the TaskManagers and the job server."""
        session = f"{RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint"
        conf = ("--configDir", str(self.folder))
        return (
            Process("jobmanager", session, "384m", conf, listens=(REST, RPC)),
            *(Process(name, TASK_MANAGER, "640m", conf) for name in TASK_MANAGERS),
            self.job_server(
                "org.apache.beam.runners.flink.FlinkJobServerDriver",
                "384m",
                flink_master=REST,
                flink_conf_dir=str(self.folder),
            ),
        )

    def settings(self) -> Mapping[str, str]:
        """Flink's configuration."""
        config = {**CONFIG, "io.tmp.dirs": self.folder / "tmp"}
        return {"config.yaml": "".join(f"{name}: {value}\n" for name, value in config.items())}

    def has_workers(self) -> bool:
        """Whether the JobManager knows all TaskManagers."""
        return self.ask(f"{REST}/overview").get("taskmanagers", 0) >= len(TASK_MANAGERS)
