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
import tempfile
from collections.abc import Sequence
from pathlib import Path

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
from google.protobuf import json_format

from das.storage.hardening import harden
from pipelines.wall.confinement import Confinement
from pipelines.workers import worker
from pipelines.workers.lifetime import exit_when_run_ends
from pipelines.workers.log import describe, open_log, say

__all__ = ["confinement_of", "environment_of", "main", "token_of"]

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


def confinement_of(pipeline_options: str) -> tuple[Confinement, str] | None:
    """Read from the pipeline's options what this worker may open, and by what the kernel is to keep it to that.

    The file of the lifetime token lies outside the release folder, and must be readable for as long as it stands.
    """
    written = json.loads(pipeline_options).get("beam:option:das_confinement:v1")
    if not written:
        return None
    content = json.loads(written)
    token = token_of(pipeline_options)
    if token:
        content["public"].append(token.partition(" ")[2])
    if not Path(content["temporary"]).is_dir():  # the driver runs on another machine
        content["temporary"] = tempfile.mkdtemp(prefix="das-")
    return Confinement.from_json(content), content["kind"]


def main() -> None:
    """Run Beam's worker until the cluster or the run ends; behind the wall, if it does the work of a later stage."""
    harden()
    environment = _asked_by_another_process(sys.argv[1:])
    options = environment["PIPELINE_OPTIONS"]
    confined = confinement_of(options)
    if confined:
        confinement, kind = confined
        confinement.enforce([kind])
    exit_when_run_ends(token_of(options))
    open_log()
    say(f"began; {describe()}; {'behind the wall' if confined else 'before the wall'}")
    worker.main(os.environ | environment)
    say("ended")


def _asked_by_another_process(arguments: Sequence[str]) -> dict[str, str]:
    """Ask the endpoint in a forked process: gRPC leaves threads behind, and the kernel confines one thread alone."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        code = 1
        try:
            with os.fdopen(writer, "w") as answer:
                json.dump(environment_of(arguments), answer)
            code = 0
        except SystemExit as error:
            code = int(error.code or 0)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as answer:
        content = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code:
        sys.exit(code)
    environment: dict[str, str] = json.loads(content)
    return environment


if __name__ == "__main__":
    main()
