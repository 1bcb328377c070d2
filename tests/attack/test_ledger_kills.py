"""A run that is killed between the ledger and its witnesses, and runs that charge at once: real processes.

Python tells audit hooks of each change to the disk before it happens: those are the moments at which a run is killed.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

COMMON = """
    import os, shutil, signal, sys
    from fractions import Fraction
    from pathlib import Path
    import numpy as np
    from das.demo.starter import write_starter
    from das.errors import BudgetError
    from das.plan.geography import spine_of
    from das.plan.load import load
    from das.records.read import fingerprints, input_files
    from das.storage.layout import Layout, make_root
    from das.storage.ledger import Ledger
    from das.storage.ledger_access import guard_of, ledger_path
    from das.storage.population import population_of
    from das.storage.run_identity import RunIdentity

    home = Path(sys.argv[1])

    def plan_of(name, total):
        config = write_starter(home / name / "input")
        config.write_text(config.read_text().replace("[geography]", f'budget = "{total}"\\n\\n[geography]', 1))
        return load(config)

    def charge(plan, out):
        layout = Layout(out)
        make_root(out)
        identity = RunIdentity.claim(plan, layout, None)
        spine = spine_of(plan)
        totals = np.arange(spine.size(spine.levels[-1]))
        prints = fingerprints(input_files(plan))
        identity.reserve(prints, population_of(prints, spine, totals))
        (out / "drawn").touch()  # from here on noise may be drawn
        Ledger.open(ledger_path(plan)).commit(identity.run_id, admit=guard_of(plan, layout.confidential.path).check)
        guard_of(plan, layout.confidential.path).record(Ledger.open(ledger_path(plan)))
        return identity.run_id

    def lines(plan):
        with Ledger.open(ledger_path(plan)).locked() as posted:
            return len(guard_of(plan).check(posted).checkpoints)
"""

KILLED = """
    WRITING = os.O_WRONLY | os.O_RDWR

    def die_before(change, folder):
        seen = 0

        def hook(event, arguments):
            nonlocal seen
            if event == "open":
                named = arguments[0] if isinstance(arguments[2], int) and arguments[2] & WRITING else None
            elif event in ("os.rename", "os.mkdir", "os.remove", "os.chmod"):
                named = arguments[0]
            else:
                named = arguments[0].removeprefix("file://") if event == "sqlite3.connect" else None
            if isinstance(named, (str, os.PathLike)) and os.fspath(named).startswith(folder):
                if seen == change:
                    os.kill(os.getpid(), signal.SIGKILL)
                seen += 1

        sys.addaudithook(hook)

    stride = int(sys.argv[2])
    for number in range(stride // 2, 300, stride):
        plan, out = plan_of(str(number), 2), home / str(number) / "out"
        child = os.fork()
        if child == 0:
            die_before(number, str(home / str(number)))
            charge(plan, out)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status)
        ledger_file = ledger_path(plan)
        charged = ledger_file.exists() and Ledger.open(ledger_file).spent("data") == 2
        drawn = (out / "drawn").exists()
        if drawn and not charged:
            print("drew without a charge", number)
        if drawn:  # then a witness knows: without the ledger, or with an older one, nothing is granted
            content = ledger_file.read_bytes()
            ledger_file.unlink()
            try:
                charge(plan, home / str(number) / "other")
                print("granted anew", number)
            except BudgetError:
                pass
            ledger_file.unlink(missing_ok=True)
            ledger_file.write_bytes(content)
        shutil.rmtree(home / str(number) / "other", ignore_errors=True)
        run_id = charge(plan, out)  # the same command continues
        ledger = Ledger.open(ledger_path(plan))
        kinds = [(entry.kind, entry.run_id) for entry in ledger.entries()]
        if kinds != [("open", ""), ("reserve", run_id), ("commit", run_id)] or ledger.verify() or lines(plan) != 2:
            print("wrong", number, kinds, lines(plan))
        try:
            charge(plan, home / str(number) / "second")
            print("granted twice", number)
        except BudgetError as error:
            if "is left" not in str(error):
                print("blocked", number, error)
        if not killed:
            print("points", number)
            break
"""

AT_ONCE = """
    plan = plan_of("one", 12)
    children = []
    for name in range(3):
        child = os.fork()
        if child == 0:
            granted = 0
            for number in range(3):
                try:
                    charge(plan, home / f"{name}-{number}")
                    granted += 1
                except BudgetError as error:
                    if "is left" not in str(error):
                        print(error, flush=True)
                        os._exit(99)
            os._exit(granted)
        children.append(child)
    granted = [os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in children]
    ledger = Ledger.open(ledger_path(plan))
    print(sum(granted), ledger.spent("data"), ledger.verify(), lines(plan) <= 12)
"""


def run_script(text: str, folder: Path, *arguments: object) -> str:
    code = textwrap.dedent(COMMON) + textwrap.dedent(text)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(folder), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_change_to_the_disk_neither_blocks_nor_grants(tmp_path: Path, stride: int) -> None:
    (last,) = run_script(KILLED, tmp_path, stride).splitlines()
    word, points = last.split()
    assert word == "points", last
    assert int(points) > 15, "ledger and witnesses are several changes"


def test_runs_that_charge_at_once_share_one_budget_and_one_witness(tmp_path: Path) -> None:
    assert run_script(AT_ONCE, tmp_path) == "6 12 [] True\n"
