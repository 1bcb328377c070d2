"""A cluster's private network without a cluster: it is made, entered and ended, or refused with its reason."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import das
from das.errors import UsageError
from pipelines.runners import cluster as cluster_module
from pipelines.runners import clusters, jars, namespace, private_network, private_network_of, runner_and_options
from pipelines.runners.cluster import JOB_SERVER, Process
from pipelines.runners.clusters import FLINK
from pipelines.runners.private_network import PrivateNetwork, listening_in
from pipelines.workers import remote_call

pytestmark = pytest.mark.usefixtures("private_networks")
PYTHON = (sys.executable, "-I", "-S", "-c")
LINKS = "import os; print(*(os.readlink(f'/proc/self/ns/{name}') for name in ('net', 'mnt', 'pid')), os.getpid())"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[PrivateNetwork]:
    made = PrivateNetwork(tmp_path)
    made.up()
    yield made
    made.down()


def inside(network: PrivateNetwork, *command: str) -> str:
    return subprocess.run([*network.prefix, *command], stdout=subprocess.PIPE, text=True, check=True).stdout


def test_a_command_runs_in_the_network_and_otherwise_where_it_would(network: PrivateNetwork) -> None:
    here = subprocess.run([*PYTHON, LINKS], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    there = inside(network, *PYTHON, LINKS).split()
    assert there[0] != here[0]
    assert there[1:3] == here[1:3]


def test_the_user_their_files_and_their_environment_stay_the_same(
    network: PrivateNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAS_TEST", "kept")
    write = "import os; open('made', 'x').close(); print(os.getuid(), os.getgid(), os.environ['DAS_TEST'])"
    monkeypatch.chdir(tmp_path)
    assert inside(network, *PYTHON, write).split() == [str(os.getuid()), str(os.getgid()), "kept"]
    made = (tmp_path / "made").stat()
    assert (made.st_uid, made.st_gid) == (os.getuid(), os.getgid())


def test_a_command_that_was_started_inside_is_not_sent_in_again(
    network: PrivateNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "import runpy, sys; print(runpy.run_path(sys.argv[1])['same_network'](int(sys.argv[2])))"
    assert inside(network, *PYTHON, asked, namespace.__file__, str(network.pid)) == "True\n"
    assert not network.is_here
    monkeypatch.setattr(namespace, "same_network", lambda _: True)
    assert network.is_here
    assert network.prefix == ()


def test_up_twice_is_once_and_down_ends_it(tmp_path: Path) -> None:
    network = PrivateNetwork(tmp_path)
    assert (network.pid, network.prefix) == (None, ())
    network.up()
    pid, where = network.pid, inside(network, *PYTHON, LINKS).split()[0]
    network.up()
    assert network.pid == pid
    network.down()
    assert network.pid is None
    assert list(tmp_path.iterdir()) == []
    assert where not in networks()
    network.down()


def networks() -> set[str]:
    """The networks of all processes that may be looked at."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.add(os.readlink(process / "ns" / "net"))
        except OSError:
            continue
    return found


def test_a_process_that_was_given_the_number_since_is_not_taken_for_it(tmp_path: Path) -> None:
    network = PrivateNetwork(tmp_path)
    with subprocess.Popen([*PYTHON, "input()", "wait", "another folder"], stdin=subprocess.PIPE) as other:
        network.pid_file.write_text(str(other.pid))
        assert network.pid is None
        network.down()
        assert other.poll() is None
        other.communicate(b"\n")


def test_a_process_of_another_user_is_not_taken_for_it(
    network: PrivateNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert network.pid is None


def test_a_command_that_does_not_exist_in_the_network(network: PrivateNetwork) -> None:
    said = subprocess.run([*network.prefix, "no-such-command"], capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (2, "das: no-such-command: cannot be used (No such file or directory)\n")


def test_a_network_that_has_ended_cannot_be_entered(network: PrivateNetwork) -> None:
    prefix = network.prefix
    os.kill(int(prefix[-1]), signal.SIGKILL)
    os.waitpid(int(prefix[-1]), 0)
    said = subprocess.run([*prefix, "true"], capture_output=True, text=True)
    assert said.returncode == 2
    assert said.stderr.startswith(f"das: /proc/{prefix[-1]}/ns/user: cannot be used (")


def test_ports_are_listed_with_whether_they_are_open_beyond_loopback() -> None:
    with socket.create_server(("127.0.0.2", 0)) as near, socket.create_server(("0.0.0.0", 0)) as wide:
        found = listening_in()
        assert (found[near.getsockname()[1]], found[wide.getsockname()[1]]) == (False, True)
    for text, loopback in (("0100007F", True), ("00000000", False), ("0" * 24 + "01000000", True), ("0" * 32, False)):
        assert private_network._is_loopback(text) == loopback
    assert private_network._is_loopback("0000000000000000FFFF00000100007F")


# Where the kernel does not allow it.


def refusing(folder: Path, monkeypatch: pytest.MonkeyPatch, says: object, **settings: str) -> None:
    """Replace the program that makes a network by one that fails, and the kernel's settings by these."""
    program = folder / "refusing.py"
    program.write_text(f"print({json.dumps(says)!r}, end='')")
    monkeypatch.setattr(private_network, "PROGRAM", str(program))
    monkeypatch.setattr(private_network, "SETTINGS", folder)
    for name, value in settings.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{value}\n")


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [
        ("kernel__unprivileged_userns_clone", "0", "`sysctl kernel.unprivileged_userns_clone=1`"),
        ("user__max_user_namespaces", "0", "`sysctl user.max_user_namespaces=1024`"),
        ("user__max_net_namespaces", "0", "`sysctl user.max_net_namespaces=1024`"),
        (
            "kernel__apparmor_restrict_unprivileged_userns",
            "1",
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
        ),
        ("user__max_user_namespaces", "100", "user and network namespaces (in a container: the system calls"),
    ],
)
def test_the_setting_that_forbids_it_is_named(
    setting: str, value: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(tmp_path, monkeypatch, ["unshare", errno.EPERM, "Operation not permitted"], **{setting: value})
    with pytest.raises(UsageError) as refused:
        PrivateNetwork(tmp_path).up()
    (problem,) = refused.value.problems
    named = f"; {setting.replace('__', '.')} is {value}" if value != "100" else ""
    assert problem.reason == f"cannot be made here (unshare: Operation not permitted{named})"
    assert problem.remedy.startswith(f"ask the administrator for {remedy}")
    assert "add --trust-network: whoever reaches the job server can run any command as you" in problem.remedy
    assert not PrivateNetwork(tmp_path).pid_file.exists()


def test_the_kernel_itself_refuses(tmp_path: Path) -> None:
    """In a user namespace that may have no network of its own; the real program says what the real kernel answers."""
    forbidding = (
        "import os, sys; from pathlib import Path; import ctypes; uid, gid = os.getuid(), os.getgid(); "
        "assert ctypes.CDLL(None).unshare(0x10000000) == 0; "
        "Path('/proc/self/uid_map').write_text(f'{uid} {uid} 1'); "
        "Path('/proc/self/setgroups').write_text('deny'); "
        "Path('/proc/self/gid_map').write_text(f'{gid} {gid} 1'); "
        "Path('/proc/sys/user/max_net_namespaces').write_text('0'); "
        "os.execv(sys.executable, [sys.executable, '-I', '-S', *sys.argv[1:]])"
    )
    said = subprocess.run([*PYTHON, forbidding, namespace.__file__, "hold", str(tmp_path)], stdout=subprocess.PIPE)
    assert said.returncode == 1
    assert json.loads(said.stdout) == ["unshare", errno.ENOSPC, os.strerror(errno.ENOSPC)]


def test_a_cluster_is_not_started_without_it_unless_the_network_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jars.CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(cluster_module, "jars", lambda _: Path())
    monkeypatch.setattr(cluster_module, "java", lambda _: sys.executable)
    refusing(tmp_path, monkeypatch, ["unshare", errno.EPERM, "Operation not permitted"])
    started: list[str] = []
    monkeypatch.setattr(type(FLINK), "_start", lambda self, process, *_: started.append(process.name))
    said = CliRunner().invoke(clusters.main, ["flink", "up"])
    assert said.exit_code == 2
    assert said.stderr.startswith("flink: a private network: cannot be made here (unshare: Operation not permitted)")
    assert started == []
    monkeypatch.setattr(type(FLINK), "is_up", lambda _: True)
    said = CliRunner().invoke(clusters.main, ["flink", "up", "--trust-network"])
    assert said.exit_code == 0
    assert len(started) == 4


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Flink, as one process that is not Java: it listens where the job server would."""
    monkeypatch.setenv(jars.CACHE, str(tmp_path / "cache"))
    program = tmp_path / "java"
    listens = "import signal, socket, sys; s = socket.create_server(('', int(sys.argv[-1]))); signal.pause()"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S -c "{listens}" "$@"\n')
    program.chmod(0o755)
    server = Process(JOB_SERVER, "Main", "1m", (FLINK.job_endpoint.rpartition(":")[2],), listens=(FLINK.job_endpoint,))
    monkeypatch.setattr(cluster_module, "jars", lambda _: tmp_path)
    monkeypatch.setattr(cluster_module, "java", lambda _: str(program))
    monkeypatch.setattr(type(FLINK), "processes", lambda _: (server,))
    monkeypatch.setattr(type(FLINK), "has_workers", lambda _: True)
    yield
    FLINK.down()


@pytest.mark.usefixtures("java")
def test_a_cluster_comes_up_in_its_network_whoever_holds_its_ports_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user who waits at the job server's port is not asked."""
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", int(FLINK.job_endpoint.rpartition(":")[2])))
        squatter.listen()
        FLINK.up()
        server = FLINK.pid_of(JOB_SERVER)
        assert server
        assert os.path.samefile(f"/proc/{server}/ns/net", f"/proc/{FLINK.network.pid}/ns/net")
        assert not os.path.samefile(f"/proc/{server}/ns/net", "/proc/self/ns/net")
        said = CliRunner().invoke(clusters.main, ["flink", "status"])
        assert said.exit_code == 0
        assert "warning" not in said.output
    FLINK.down()
    assert (FLINK.network.pid, FLINK.pid_of(JOB_SERVER)) == (None, None)


@pytest.mark.usefixtures("java")
def test_a_cluster_without_a_private_network_says_so_and_is_not_added_to() -> None:
    said = CliRunner().invoke(clusters.main, ["flink", "up", "--trust-network"])
    assert said.exit_code == 0
    assert said.stderr == f"flink: {clusters.OPEN}\n"
    assert int(FLINK.job_endpoint.rpartition(":")[2]) in listening_in()
    with pytest.raises(
        UsageError, match=r"runs, and not in a private network.*; stop it with `bash scripts/flink down`"
    ):
        FLINK.up()


def test_what_the_command_does_not_understand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jars.CACHE, str(tmp_path))
    for arguments, says in (
        (["down", "--trust-network"], "flink: --trust-network: means nothing to `down`; leave it out\n"),
        (["status", "x"], "flink: x: means nothing to `status`; leave it out\n"),
        (["exec"], "flink: exec: no command was given; for example `bash scripts/flink exec das ...`\n"),
        (["exec", "--", "true"], "flink: Flink: has no private network now; start it with `bash scripts/flink up`\n"),
    ):
        said = CliRunner().invoke(clusters.main, ["flink", *arguments])
        assert (said.exit_code, said.stderr) == (2, says)


# A run whose cluster is in a private network goes there by itself.


def test_only_a_runner_at_the_clusters_own_address_is_in_its_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jars.CACHE, str(tmp_path))
    FLINK.folder.mkdir()
    assert private_network_of(["--runner=flink"]) is None
    FLINK.network.up()
    try:
        assert private_network_of(["--runner=flink"]) == FLINK.network
        for options in ([], ["--runner=spark"], ["--runner=flink", "--job_endpoint=far:8099"]):
            assert private_network_of(options) is None
    finally:
        FLINK.network.down()


@pytest.mark.slow
def test_a_run_is_done_inside_and_what_it_raises_arrives(
    starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no cluster in this network: the child inside finds no job server, and says so as it would here."""
    monkeypatch.setenv(jars.CACHE, str(tmp_path / "cache"))
    FLINK.folder.mkdir(parents=True)
    FLINK.network.up()
    started: list[tuple[str, ...]] = []
    start = remote_call.start
    monkeypatch.setattr(remote_call, "start", lambda prefix: started.append(prefix) or start(prefix))
    try:
        prefix = FLINK.network.prefix
        with pytest.raises(
            UsageError, match="no job server can be reached there; start one with `bash scripts/flink up`"
        ):
            das.run(das.load(starter), out=tmp_path / "out", options=["--runner=flink"])
    finally:
        FLINK.network.down()
    assert started == [prefix]
    assert not (starter.parent / "ledger.sqlite").exists()


def test_trust_network_is_an_option_of_any_runner() -> None:
    for options in (["--trust-network"], ["--runner=flink", "--trust-network"]):
        _, read = runner_and_options(options)
        assert read.get_all_options(drop_default=True)["trust_network"] is True
    _, read = runner_and_options(["--runner=flink"])
    assert "trust_network" not in read.get_all_options(drop_default=True)
