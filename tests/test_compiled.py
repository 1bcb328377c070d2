"""What was compiled is used again, but never once a kernel or a constant that went into it has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numba

from das.compiled import LEAN_VERSIONS

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
CALL = "from kernels.outer import inner, outer; print(outer(1), sum(outer.stats.cache_hits.values()), inner(1))"


def call(folder: Path) -> list[int]:
    command = [sys.executable, "-c", CALL]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_what_was_compiled_lives_as_long_as_what_went_into_it(tmp_path: Path) -> None:
    """The kernel, whether it was kept, and the kernel that it calls: that one is compiled in full as well."""
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "outer.py").write_text(OUTER)
    (kernels / "inner.py").write_text(INNER.format(times=1))
    (kernels / "constants.py").write_text("MORE = 1")
    assert call(tmp_path) == [2, 0, 2]
    assert call(tmp_path) == [2, 1, 2]
    (kernels / "inner.py").write_text(INNER.format(times=3))
    assert call(tmp_path) == [4, 0, 4]
    (kernels / "constants.py").write_text("MORE = 5")
    assert call(tmp_path) == [8, 0, 8]


ASK = "from das.compiled import kernels_are_compiled; import sys; print(kernels_are_compiled(), 'numba' in sys.modules)"


def test_a_command_can_ask_whether_kernels_are_compiled_without_loading_the_compiler() -> None:
    from das.compiled import kernel_folder
    from das.estimation.solvers.active_set.kernel import solve_all

    machine_code = any(kernel_folder(solve_all.py_func).rglob("kernel.*.nbc"))
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(machine_code), "False"]


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


PARTS = """
from das.compiled import compiled, compiled_part

@compiled_part
def twice(x):
    return x + x

@compiled_part
def four_times(x):
    return twice(twice(x))

@compiled
def kernel(x):
    return four_times(x) + 1
"""
COUNT = """
import das.compiled
das.compiled.LEAN_VERSIONS = {versions}
from numba.core.codegen import CPUCodeLibrary
optimise, optimised = CPUCodeLibrary._optimize_final_module, []
CPUCodeLibrary._optimize_final_module = lambda library: (optimised.append(library.name), optimise(library))
from kernels.parts import kernel
print(kernel(3), *sorted(set(optimised) & {{"kernel", "four_times", "twice"}}))
"""


def test_parts_are_optimised_in_the_kernel_alone(tmp_path: Path) -> None:
    """Numba is changed for this from within, so it is tried with the version that the lock names."""
    assert numba.__version__.startswith(LEAN_VERSIONS)
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "parts.py").write_text(PARTS)

    def optimised(versions: tuple[str, ...]) -> list[str]:
        shutil.rmtree(kernels / "__pycache__", ignore_errors=True)
        command = [sys.executable, "-c", COUNT.format(versions=versions)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()

    assert optimised(LEAN_VERSIONS) == ["13", "kernel"]
    assert optimised(("none",)) == ["13", "four_times", "kernel", "twice"]
