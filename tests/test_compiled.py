"""What was compiled is used again, but never once a kernel or a constant that went into it has changed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from das.plan.mechanism_stage import BY_METHOD

INNER = """
from das.compiled import compiled
from kernels.constants import MORE

@compiled
def inner(x):
    return {times} * x + MORE
"""
OUTER = """
from das.compiled import compiled
from kernels.inner import inner

@compiled
def outer(x):
    return inner(x)
"""
CALL = "from kernels.outer import outer; print(outer(1), sum(outer.stats.cache_hits.values()))"


def call(folder: Path) -> list[int]:
    command = [sys.executable, "-c", CALL]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
def test_what_was_compiled_lives_as_long_as_what_went_into_it(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "outer.py").write_text(OUTER)
    (kernels / "inner.py").write_text(INNER.format(times=1))
    (kernels / "constants.py").write_text("MORE = 1")
    assert call(tmp_path) == [2, 0]
    assert call(tmp_path) == [2, 1]
    (kernels / "inner.py").write_text(INNER.format(times=3))
    assert call(tmp_path) == [4, 0]
    (kernels / "constants.py").write_text("MORE = 5")
    assert call(tmp_path) == [8, 0]
    assert call(tmp_path) == [8, 1]


def test_of_two_processes_one_compiles_and_the_other_waits_for_it(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "outer.py").write_text(OUTER)
    (kernels / "inner.py").write_text(INNER.format(times=1))
    (kernels / "constants.py").write_text("MORE = 1")
    command = [sys.executable, "-c", CALL]
    both = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sorted(process.communicate()[0].split() for process in both) == [["2", "0"], ["2", "1"]]


PARTS = """
from das.compiled import compiled, compiled_part

@compiled_part
def part(x):
    return x.sum() / x[0]

@compiled
def kernel(x):
    return part(x) + part(x[1:])
"""
LINK = """
import numpy as np
from numba.core import codegen
from kernels.parts import kernel

emitted, emit = [], codegen.JITCodeLibrary._finalize_specific
def counted(self):
    emitted.append(self.name)
    emit(self)
codegen.JITCodeLibrary._finalize_specific = counted
before = codegen.CPUCodeLibrary._finalize_final_module, codegen.JITCPUCodegen.set_env
kernel(np.ones(3))
after = codegen.CPUCodeLibrary._finalize_final_module, codegen.JITCPUCodegen.set_env
print(*emitted, kernel(np.array([1.0, 2.0, 3.0])), kernel(np.array([0.0, 2.0, 3.0])), before == after)
"""


def test_parts_are_linked_into_their_kernel_and_get_no_machine_code_of_their_own(tmp_path: Path) -> None:
    """By private names of one Numba: another one in the lock must be tried before it is named there."""
    from importlib.metadata import version

    from das.compiled import NUMBA_WITH_LINKED_PARTS

    assert version("numba") == NUMBA_WITH_LINKED_PARTS
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "parts.py").write_text(PARTS)
    done = subprocess.run([sys.executable, "-c", LINK], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["kernel", "8.5", "inf", "True"]


ASK = "from das.compiled import kernels_are_compiled; import sys; print(kernels_are_compiled(), 'numba' in sys.modules)"


def test_a_command_can_ask_whether_kernels_are_compiled_without_loading_the_compiler() -> None:
    from das.compiled import kernel_folder
    from das.estimation.solvers.active_set.kernel import solve_all

    machine_code = any(kernel_folder(solve_all.py_func).rglob("kernel.*.nbc"))
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(machine_code), "False"]


@pytest.mark.slow
def test_machine_code_of_earlier_sources_is_deleted_a_month_after_its_last_use(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "outer.py").write_text(OUTER)
    (kernels / "inner.py").write_text(INNER.format(times=1))
    (kernels / "constants.py").write_text("MORE = 1")
    call(tmp_path)
    first = set((kernels / "__pycache__" / "kernels").iterdir())
    old = sorted(first)[0]
    month_ago = time.time() - 31 * 86_400
    os.utime(old, (month_ago, month_ago))
    (kernels / "constants.py").write_text("MORE = 2")
    call(tmp_path)
    left = set((kernels / "__pycache__" / "kernels").iterdir())
    assert old not in left
    assert first - {old} < left


@pytest.mark.parametrize("method", sorted(BY_METHOD))
def test_the_kernels_that_a_run_asks_about_are_kernels(method: str) -> None:
    """A module of parts alone would have no machine code, and every run would announce a compilation."""
    module = import_module(BY_METHOD[method].kernels)
    assert any(hasattr(each, "signatures") and each.__module__ == module.__name__ for each in vars(module).values())
