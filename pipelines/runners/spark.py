"""Apache Spark: a master and two workers of one core each.

A task that fails is tried again by Spark itself, up to four times, and what a lost executor held is computed again.
Neither draws new noise; see :mod:`pipelines.stages.measure`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import ClassVar

from pipelines.runners.cluster import WORKER, Cluster, Process
from pipelines.runners.jars import Distribution

__all__ = ["Spark"]

MASTER = "localhost:7077"
WEB = "localhost:8181"
DEPLOY = "org.apache.spark.deploy"
WORKERS = {"worker-1": "localhost:8182", "worker-2": "localhost:8183"}
"""Each with the address of its web page."""
CLEANUP = ("-Dspark.worker.cleanup.enabled=true", "-Dspark.worker.cleanup.appDataTtl=86400")
"""Logs of jobs that are over are deleted after a day."""


def _port(address: str) -> str:
    return address.split(":")[1]


class Spark(Cluster):
    """Spark on this machine."""

    distribution = Distribution(
        cluster="Spark",
        version="3.5.8",
        package="pyspark",
        package_sha256="54cca0767b21b40e3953ad1d30f8601c53abf9cbda763653289cdcfcac52313c",
        runner="beam-runners-spark-3",
        excluded=("org.slf4j",),
        below="jars",
        jars_sha256="0932e02e8588aa9b796460887edc56b77639698530a0c7f66f2bbc9458fdc83a",
    )
    job_endpoint = "localhost:8199"
    options: ClassVar[Mapping[str, str]] = {"job_endpoint": job_endpoint, **WORKER}

    def processes(self) -> tuple[Process, ...]:
        """Name the master, the workers and the job server, which is the driver of every job."""
        local = ("--host", "localhost")
        return (
            Process(
                "master",
                f"{DEPLOY}.master.Master",
                "384m",
                (*local, "--port", _port(MASTER), "--webui-port", _port(WEB)),
                listens=(MASTER, WEB),
            ),
            *(
                Process(
                    name,
                    f"{DEPLOY}.worker.Worker",
                    "256m",
                    (
                        *(*local, "--cores", "1", "--memory", "1g", "--webui-port", _port(page)),
                        *("--work-dir", str(self.folder / name), f"spark://{MASTER}"),
                    ),
                    CLEANUP,
                    (page,),
                )
                for name, page in WORKERS.items()
            ),
            self.job_server(
                "org.apache.beam.runners.spark.SparkJobServerDriver",
                "512m",
                tuple(f"-D{name}={value}" for name, value in self._job_settings().items()),
                spark_master_url=f"spark://{MASTER}",
            ),
        )

    def _job_settings(self) -> Mapping[str, str]:
        """Spark's settings of a job; its driver, within the job server, passes them to the executors."""
        return {
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": shlex.join(self.flags),
        }

    def environment(self) -> Mapping[str, str]:
        """Where Spark finds its jars, and what its scripts would have found out."""
        return {
            "SPARK_HOME": str(self.distribution.home),
            "SPARK_SCALA_VERSION": "2.12",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "tmp"),
        }

    def has_workers(self) -> bool:
        """Whether the master knows all workers."""
        return self.ask(f"{WEB}/json/").get("aliveworkers", 0) >= len(WORKERS)
