"""What was compiled is used again, but never once a kernel that it calls has changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

INNER = "from das.compiled import compiled\n\n@compiled\ndef inner(x):\n    return x + {more}\n"
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


def test_what_was_compiled_lives_as_long_as_the_kernels_that_it_calls(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "outer.py").write_text(OUTER)
    (kernels / "inner.py").write_text(INNER.format(more=1))
    assert call(tmp_path) == [2, 0]
    assert call(tmp_path) == [2, 1]
    (kernels / "inner.py").write_text(INNER.format(more=4))
    assert call(tmp_path) == [5, 0]
    (kernels / "notes.py").write_text("nothing that is compiled")
    assert call(tmp_path) == [5, 1]
