"""Loops that are compiled, once on each machine: what was compiled is kept until its package changes.

Numba keeps machine code beside a module and looks at that module alone to see whether it is still right; kernels and
constants of other modules that are compiled into it may have changed. So what is kept carries a digest of the package.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit

__all__ = ["compiled"]


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called; no divisor is asked whether it is zero."""
    kernel: Any = njit(cache=True, error_model="numpy")(function)
    kernel._cache._cache_file._source_stamp = _digest(Path(inspect.getfile(function)).parent)
    return kernel


@cache
def _digest(package: Path) -> str:
    """Digest of a package's modules."""
    return sha256(b"".join(path.read_bytes() for path in sorted(package.glob("*.py")))).hexdigest()
