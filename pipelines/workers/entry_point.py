"""``das-worker``: how an engine starts a Python worker on its own machine.

An engine that runs workers as processes (Beam's environment type PROCESS) starts a command with the worker's name and
an endpoint. Beam's own command for this comes with its container images; this one needs no image, only an installed
das. It asks the engine for the pipeline's options and becomes :mod:`pipelines.workers.worker` for as long as the run lasts.
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

ANSWERS_WITHIN_SECONDS = 60


def environment_of(arguments: Sequence[str]) -> dict[str, str]:
    """What Beam's worker wants to find in its environment, from what the engine says about it.

    >>> environment_of(["--id=1-1"])
    Traceback (most recent call last):
    SystemExit: 2
    """
    parser = argparse.ArgumentParser(prog="das-worker", allow_abbrev=False)
    parser.add_argument("--id", required=True, help="the worker's name")
    parser.add_argument("--provision_endpoint", required=True, help="where the engine says what the worker is for")
    given, _ = parser.parse_known_args(arguments)
    info = _provided(given.provision_endpoint, given.id)
    return {
        "WORKER_ID": given.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
        "CONTROL_API_SERVICE_DESCRIPTOR": f'url: "{info.control_endpoint.url}"',
    }


def _provided(endpoint: str, worker_id: str) -> beam_provision_api_pb2.ProvisionInfo:
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        asked = beam_provision_api_pb2.GetProvisionInfoRequest()
        named = [("worker_id", worker_id)]
        return service.GetProvisionInfo(asked, metadata=named, timeout=ANSWERS_WITHIN_SECONDS).info


def token_of(pipeline_options: str) -> str | None:
    """Read the lease from a pipeline's options, as the engine passes them on.

    >>> token_of('{"beam:option:das_lease:v1": "1f /out/.lease"}')
    '1f /out/.lease'
    """
    lease = json.loads(pipeline_options).get("beam:option:das_lease:v1")
    return str(lease) if lease else None


def main() -> None:
    """Run Beam's worker until the engine or the run ends."""
    environment = environment_of(sys.argv[1:])
    os.environ.update(environment)
    exit_when_run_ends(token_of(environment["PIPELINE_OPTIONS"]))
    worker.main()


if __name__ == "__main__":
    main()
