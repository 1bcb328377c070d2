"""The process itself: no core dump, closed to other processes, the key locked and gone; nothing to time a run by."""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

import das
from das.demo.starter import write_starter
from das.errors import BudgetError, InputError, ProblemsFound
from das.noise.locked_memory import LockedMemory
from das.noise.stream import RunKey
from das.plan.plan import Plan
from das.runner import find_runner
from das.storage.key_file import read_key, write_key
from das.storage.ledger import Ledger
from pipelines.workers import entry_point, fork_server

GET_DUMPABLE, SET_DUMPABLE = 3, 4
ROOT = Path(__file__).resolve().parents[2]


def prctl(option: int, value: int = 0) -> int:
    return ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def script(text: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, text=True, **pipes)


# -- core dumps and tracing --------------------------------------------------------------------------------------------


def test_a_run_forbids_core_dumps_and_tracing_of_its_process(tmp_path: Path) -> None:
    prctl(SET_DUMPABLE, 1)
    find_runner().run(das.load(write_starter(tmp_path / "input")), tmp_path / "out", upto="tabulate")
    assert prctl(GET_DUMPABLE) == 0
    assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)


HARDENED = """
    import ctypes, os, sys
    from das.storage.hardening import harden

    if os.geteuid() == 0:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, ctypes.c_ulong(1), 0, 0, 0)
    if sys.argv[1] == "hardened":
        harden()
        for name in ("maps", "status", "fd", "exe", "smaps"):  # what libraries read about their own process
            path = f"/proc/self/{name}"
            os.listdir(path) if name == "fd" else os.readlink(path) if name == "exe" else open(path).read()
        if not os.fork():
            os._exit(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
        print(os.waitstatus_to_exitcode(os.wait()[1]), end=" ")
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["hardened", "ordinary"])
def test_another_process_of_the_same_user_cannot_look_into_it(kind: str) -> None:
    with script(HARDENED, kind) as victim:
        assert victim.stdout is not None
        ready = victim.stdout.readline()
        user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        seen = subprocess.run(["cat", f"/proc/{victim.pid}/environ"], capture_output=True, cwd="/", **user)
        victim.communicate()
    assert ready == ("0 ready\n" if kind == "hardened" else "ready\n"), "a forked process inherits it"
    assert (seen.returncode != 0) == (kind == "hardened"), "the attack works on a process that is not hardened"


class HardenedError(Exception):
    """Raised in place of hardening, so that nothing can come before it unnoticed."""


@pytest.mark.parametrize("module", [fork_server, entry_point])
def test_worker_processes_are_hardened_before_they_do_anything(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hardened() -> None:
        raise HardenedError

    monkeypatch.setattr(module, "harden", hardened)
    with pytest.raises(HardenedError):
        module.main()


# -- the key in memory -------------------------------------------------------------------------------------------------


def flags_at(address: int) -> set[str]:
    """The kernel's flags of the memory at an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return set(line.split()[1:])
    return set()


def test_the_key_is_locked_not_dumped_not_inherited_and_overwritten() -> None:
    key = RunKey.generate()
    pages = key.memory._pages
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    flags = flags_at(address)
    assert {"dd", "wf"} <= flags, "not in a core dump, zeros after a fork"
    assert ("lo" in flags) == key.memory.is_locked
    assert pages[:] != bytes(32)
    streams = key.streams(b"plan")
    derived = streams._keys._pages
    del key
    assert pages[:] == bytes(32)
    assert derived[:] != bytes(128)
    streams.wipe()
    assert derived[:] == bytes(128)


def test_wiped_keys_draw_nothing() -> None:
    """The zeros that are left must never be taken for a key: everybody knows their noise."""
    key = RunKey.for_testing("t")
    streams = key.streams(b"plan")
    bundle = streams.bundle([("county", "44001", "total", "m")])
    streams.wipe()
    with pytest.raises(AttributeError):
        streams.bundle([("county", "44001", "total", "m")])
    with pytest.raises(ValueError, match="wiped"):
        bundle.bits(0, 0)
    with ThreadPoolExecutor(1) as other, pytest.raises(ValueError, match="wiped"):
        other.submit(lambda: next(bundle.lanes(8))).result()  # a thread that has no cipher of these keys yet
    key.memory.wipe()
    for use in (lambda: key.streams(b"plan"), lambda: key.secret, lambda: key == RunKey.for_testing("t")):
        with pytest.raises(ValueError, match="wiped"):
            use()


FORKED = """
    import os
    from das.noise.stream import RunKey

    key, streams = RunKey.for_testing("t"), RunKey.for_testing("t").streams(b"")
    if not os.fork():
        refused = 0
        for use in (lambda: key.secret, lambda: streams.bits(("", "", "", ""))):
            try:
                use()
            except ValueError:
                refused += 1
        del key, streams
        os._exit(refused)
    print(os.waitstatus_to_exitcode(os.wait()[1]), key == RunKey.for_testing("t"))
"""


def test_a_forked_process_has_no_key_and_does_not_crash() -> None:
    assert script(FORKED).communicate()[0] == "2 True\n"


UNMAPPED = """
    import mmap, os
    from das.noise.locked_memory import LockedMemory

    memory = LockedMemory(b"secret")
    if not os.fork():
        others = [mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(64)]
        for pages in others:
            pages[:] = b"x" * 4096
        del memory
        os._exit(all(pages[:] == b"x" * 4096 for pages in others))
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_forked_process_that_lets_the_key_go_unmaps_nothing_else() -> None:
    """Were the key's pages absent after a fork, others could take their address, and would be unmapped in their stead."""
    assert script(UNMAPPED).communicate()[0] == "1\n"


HELD = """
    import sys
    from pathlib import Path
    from das.storage.key_file import read_key

    key = read_key(Path(sys.argv[1]))
    streams = key.streams(b"plan")
    lanes = [run.copy() for _, run in streams.bundle([("county", "44001", "total", "m")]).lanes(1000)]
    if sys.argv[2] == "wiped":
        del key
        streams.wipe()
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["held", "wiped"])
def test_no_copy_of_the_run_key_is_left_in_memory(kind: str, tmp_path: Path) -> None:
    """Looked for in all memory that the process may write, from outside."""
    path = tmp_path / "run.key"
    write_key(path, RunKey.generate())
    with script(HELD, path, kind) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        found = count_in_memory(process.pid, path.read_bytes())
        process.communicate()
    assert found == (kind == "held")


def count_in_memory(process: int, secret: bytes) -> int:
    found = 0
    with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            start, stop = (int(end, 16) for end in span.split("-"))
            if rights.startswith("rw"):
                memory.seek(start)
                try:
                    found += (memory.read(stop - start) or b"").count(secret)
                except OSError:
                    continue  # a guard page
    return found


# -- the key on the disk -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> das.Release:
    """A release that spends the whole budget of its data."""
    folder = tmp_path_factory.mktemp("first")
    return das.run(das.load(write_starter(folder / "input")), out=folder / "out")


@pytest.fixture
def plan(first: das.Release) -> Plan:
    return das.load(first.folder.path.parents[1] / "input" / "config.toml")


def test_a_run_that_is_refused_for_its_budget_leaves_no_key(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="already spent"):
        find_runner().run(plan, tmp_path / "out", upto="measure")
    assert not list((tmp_path / "out" / "confidential").glob("*run.key*"))


def test_nor_one_that_was_killed_before_the_charge_and_is_refused_for_another_reason(tmp_path: Path) -> None:
    config = write_starter(tmp_path / "input")
    out, key = tmp_path / "out", tmp_path / "out" / "confidential" / "run.key"
    find_runner().run(das.load(config), out, upto="tabulate")
    Ledger.open(config.parent / "ledger.sqlite")
    write_key(key, RunKey.generate())  # here the run was killed
    people = (config.parent / "people.csv").read_text()
    (config.parent / "people.csv").write_text(people + "N11,f,unknown\n")
    with pytest.raises(InputError):
        find_runner().run(das.load(config), out, upto="measure")
    assert not key.exists()
    (config.parent / "people.csv").write_text(people)
    find_runner().run(das.load(config), out, upto="measure")


@pytest.mark.parametrize("trouble", [pytest.param("ledger lost", marks=pytest.mark.slow), "ledger emptied"])
def test_a_run_that_was_charged_keeps_its_key_until_the_ledger_is_back(trouble: str, tmp_path: Path) -> None:
    config = write_starter(tmp_path / "input")
    plan, out, ledger = das.load(config), tmp_path / "out", tmp_path / "input" / "ledger.sqlite"

    def stopped(self: object, *_: object) -> None:
        raise RuntimeError("stopped")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.stages.measure.noisy_answers", stopped)
        with pytest.raises(RuntimeError):
            find_runner().run(plan, out, upto="measure")
    kept = (out / "confidential" / "run.key").read_bytes()
    ledger.rename(tmp_path / "saved")
    if trouble == "ledger emptied":
        Ledger.open(ledger)
    people = config.parent / "people.csv"
    people.rename(tmp_path / "people")
    with pytest.raises(ProblemsFound):
        find_runner().run(plan, out, upto="measure")
    assert (out / "confidential" / "run.key").read_bytes() == kept
    (tmp_path / "people").rename(people)
    (tmp_path / "saved").rename(ledger)
    find_runner().run(plan, out, upto="measure")
    assert not (out / "confidential" / "run.key").exists()


# -- times -------------------------------------------------------------------------------------------------------------


def test_public_files_tell_days_and_the_log_seconds_to_its_owner(first: das.Release) -> None:
    out = first.folder.path.parent
    day = re.compile(r"\d{4}-\d\d-\d\d")
    run = json.loads((out / "run.json").read_bytes())
    for time_of in (first.manifest["started"], first.manifest["finished"], run["started"]):
        assert day.fullmatch(time_of)
    texts = [path for path in out.rglob("*") if path.suffix in (".json", ".html", ".toml") and path.is_file()]
    assert len(texts) > 8
    clock = re.compile(r"\d\d:\d\d:\d\d")
    assert [path.name for path in texts if clock.search(path.read_text())] == []
    assert clock.search((out / "run.log").read_text())
    assert (out / "run.log").stat().st_mode & 0o077 == 0


def test_the_key_file_comes_back_as_it_was(tmp_path: Path) -> None:
    key = RunKey.generate()
    write_key(tmp_path / "run.key", key)
    assert read_key(tmp_path / "run.key") == key
    assert LockedMemory(b"ab").size == 2
