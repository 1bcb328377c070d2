"""``das-worker``: the command by which a cluster starts a Python worker on its own machine.

A cluster that runs workers as processes (Beam's environment type PROCESS) starts a command with the worker's name and
an endpoint. Beam's own command for this is part of its container images; this one needs only an installed das. It asks
the endpoint for the pipeline's options and runs :mod:`pipelines.workers.worker` until the run ends.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
from google.protobuf import json_format

from pipelines.workers import worker
from pipelines.workers.lifetime import exit_when_run_ends

__all__ = ["environment_of", "main", "token_of"]

PROVISION_SECONDS = 60


def environment_of(arguments: Sequence[str]) -> dict[str, str]:
    """Ask the provision endpoint about this worker; return the environment variables that Beam's worker reads.

    >>> environment_of(["--id=1-1"])
    Traceback (most recent call last):
    SystemExit: 2
    """
    parser = argparse.ArgumentParser(prog="das-worker", allow_abbrev=False)
    parser.add_argument("--id", required=True, help="the worker's name")
    parser.add_argument("--provision_endpoint", required=True, help="the address that serves the worker's settings")
    given, _ = parser.parse_known_args(arguments)
    info = _provision_info(given.provision_endpoint, given.id)
    return {
        "WORKER_ID": given.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
        "CONTROL_API_SERVICE_DESCRIPTOR": f'url: "{info.control_endpoint.url}"',
    }


def _provision_info(endpoint: str, worker_id: str) -> beam_provision_api_pb2.ProvisionInfo:
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        metadata = [("worker_id", worker_id)]
        return service.GetProvisionInfo(request, metadata=metadata, timeout=PROVISION_SECONDS).info


def token_of(pipeline_options: str) -> str | None:
    """Read the run's lifetime token from the pipeline's options; None if they hold none.

    >>> token_of('{"beam:option:das_lifetime_token:v1": "1f /out/.lifetime"}')
    '1f /out/.lifetime'
    """
    token = json.loads(pipeline_options).get("beam:option:das_lifetime_token:v1")
    return str(token) if token else None


def main() -> None:
    """Run Beam's worker until the cluster or the run ends."""
    environment = environment_of(sys.argv[1:])
    os.environ.update(environment)
    exit_when_run_ends(token_of(environment["PIPELINE_OPTIONS"]))
    worker.main()


if __name__ == "__main__":
    main()
