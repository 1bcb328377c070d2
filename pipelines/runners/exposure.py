"""What a cluster of one's own leaves open: a checklist, verified where that can be done from here.

Beam's job server, its artifact service and the ports to its Python workers know neither encryption nor authentication.
Whoever reaches the job server can run any command as its user; whoever reads the traffic reads records. So a cluster
that is not in a private network of das is refused unless somebody who has closed it says so (``--trust-network``).
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from das.errors import Problem
from das.storage.layout import Layout
from pipelines.runners.private_network import listening_in

__all__ = ["Check", "State", "checklist", "refusal"]

SECONDS = 5
WEB_PAGES = {"flink": (8081, "overview"), "spark": (8080, "json/")}
"""The port at which a cluster's web page usually is, and a page that says what runs."""
INTERNAL_TLS = "security.ssl.internal.enabled"
MOUNTS = Path("/proc/self/mountinfo")
NETWORK_FILE_SYSTEMS = re.compile(r"nfs|cifs|smb|9p|afs|ceph|gluster|lustre|fuse\.sshfs|beegfs|gpfs")
ENCRYPTED = re.compile(r"(^|,)(sec=krb5p|xprtsec=m?tls|seal)(,|$)")
"""Mount options by which NFS and SMB encrypt what they send."""


class State(Enum):
    """What was found."""

    OPEN = "open"
    CLOSED = "closed"
    UNKNOWN = "not verified"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist: what was looked at, what was found, and what must be done."""

    what: str
    state: State
    found: str
    needed: str

    def problem(self) -> Problem:
        """The line as a message.

        >>> print(Check("logs", State.UNKNOWN, "quote records", "keep them private").problem())
        [not verified] logs: quote records; keep them private
        """
        return Problem(f"[{self.state.value}] {self.what}", self.found, self.needed)


def checklist(endpoint: str | None, cluster: str, out: Path) -> tuple[Check, ...]:
    """Look at everything that can be seen of a cluster from here.

    Parameters
    ----------
    endpoint : str or None
        Address of the job server; None if the runner has none, or has it within this process.
    cluster : str
        The name of the cluster, for the ports at which its pages usually are.
    out : Path
        The folder of the run, which the workers share.
    """
    return (*(_of_job_server(endpoint, cluster) if endpoint else ()), *_of_workers(), _file_system(out), _modes(out))


def refusal(runner: str, start: str) -> Problem:
    """The headline of the checklist when a run is refused."""
    reason = "sends confidential data over a network that is not private, where others may reach or read it"
    remedy = f"use `{start}`, which makes a private network, or see to all that follows and add --trust-network"
    return Problem(f"--runner={runner}", reason, remedy)


def _of_job_server(endpoint: str, cluster: str) -> Iterator[Check]:
    host, _, port = endpoint.rpartition(":")
    admit = "let only this machine and this user reach it (a firewall, a VPN, a machine of its own)"
    reached = _reached_by(host, int(port))
    yield Check(f"job server {endpoint}", State.OPEN, f"takes jobs from anyone, without encryption; {reached}", admit)
    yield _artifacts(endpoint, admit)
    if cluster in WEB_PAGES:
        yield from _web_page(host, cluster, admit)


def _reached_by(host: str, port: int) -> str:
    """Who reaches an address, as far as that can be seen from here."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError:
        return "its address is unknown"
    if not all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found):
        return "its address is not loopback"
    if listening_in().get(port):
        return "it listens on every interface of this machine, not on loopback alone"
    return "its address is loopback, where every user of this machine reaches it"


def _artifacts(endpoint: str, admit: str) -> Check:
    """The service that takes and gives files of jobs. The job server names it when a job, here an empty one, begins."""
    try:
        with grpc.insecure_channel(endpoint) as channel:
            request = beam_job_api_pb2.PrepareJobRequest(job_name="das-checklist")
            prepared = beam_job_api_pb2_grpc.JobServiceStub(channel).Prepare(request, timeout=SECONDS)
        named = prepared.artifact_staging_endpoint.url
        host, _, port = named.rpartition(":")
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
    except (grpc.RpcError, OSError, ValueError):
        return Check("artifact service", State.UNKNOWN, "could not be reached from here", admit)
    return Check(f"artifact service {named}", State.OPEN, "gives files to anyone and takes them, unencrypted", admit)


def _web_page(host: str, cluster: str, admit: str) -> Iterator[Check]:
    port, page = WEB_PAGES[cluster]
    where, login = (
        f"web page http://{host}:{port}",
        "ask for a password, or close it: whoever reaches it can submit jobs",
    )
    needed = "encrypt what the cluster's processes send each other"
    between = f"traffic between {cluster}'s processes"
    try:
        _get(f"http://{host}:{port}/{page}")
    except urllib.error.HTTPError as error:
        closed = error.code in (401, 403)
        state = State.CLOSED if closed else State.UNKNOWN
        yield Check(where, state, f"answers {error.code}", login)
    except (OSError, ValueError):
        yield Check(where, State.UNKNOWN, "does not answer there, but may at another port", login)
    else:
        yield Check(where, State.OPEN, "answers without authentication", login)
    if cluster != "flink":
        yield Check(
            between, State.UNKNOWN, "holds records", f"{needed} (spark.authenticate, spark.network.crypto.enabled)"
        )
        return
    try:
        config = {item["key"]: item["value"] for item in _get(f"http://{host}:{port}/jobmanager/config")}
    except (OSError, ValueError, TypeError, KeyError):
        yield Check(between, State.UNKNOWN, "holds records", f"{needed} ({INTERNAL_TLS})")
        return
    encrypted = config.get(INTERNAL_TLS) == "true"
    found = f"holds records; {INTERNAL_TLS} is {'true' if encrypted else 'not true'}"
    yield Check(between, State.CLOSED if encrypted else State.OPEN, found, needed)


def _get(address: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=SECONDS) as answer:
        return json.load(answer)


def _of_workers() -> Iterator[Check]:
    found = "Beam talks to its Python workers at ports that know neither encryption nor authentication"
    yield Check("ports of workers", State.UNKNOWN, found, "let no other user or machine reach those of the cluster")
    found = "what is spilt holds records, and logs may quote them"
    yield Check("temporary folders and logs", State.UNKNOWN, found, "keep them private (0700) on every machine")


def _file_system(out: Path) -> Check:
    """How what the workers write to the shared folder travels."""
    what, needed = f"file system of {out}", "encrypt what it sends (NFS: sec=krb5p or xprtsec=tls; SMB: seal)"
    mount = _mount_of(out)
    if mount is None:
        return Check(what, State.UNKNOWN, "its kind could not be read", needed)
    kind, options = mount
    if not NETWORK_FILE_SYSTEMS.match(kind):
        return Check(what, State.CLOSED, f"is {kind}, on this machine", "see how the machines of the workers mount it")
    if ENCRYPTED.search(options):
        return Check(what, State.CLOSED, f"is {kind}, encrypted", "see that the machines of the workers mount it so")
    return Check(what, State.OPEN, f"is {kind}, and not known to be encrypted", needed)


def _mount_of(path: Path) -> tuple[str, str] | None:
    """Kind and options of the file system that holds a path; None if they cannot be read."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        rows = [row.split() for row in MOUNTS.read_text().splitlines()]
    except OSError:
        return None
    for row in rows:
        if row[2] == wanted:
            kind, _, options = row[row.index("-") + 1 :]
            return kind, options
    return None


def _modes(out: Path) -> Check:
    """Who else may enter the folder of confidential files, here and wherever it is mounted."""
    folder, needed = Layout(out).confidential.path, "let only this user enter it (chmod 700)"
    try:
        mode = folder.stat().st_mode & 0o777
    except FileNotFoundError:
        mode = 0o700  # as it will be made
    state = State.OPEN if mode & 0o077 else State.CLOSED
    return Check(f"confidential folder {folder}", state, f"has mode {mode:04o}", needed)
