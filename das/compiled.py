"""Numba kernels, compiled once per machine and recompiled when any of their sources change.

Numba keeps machine code under a folder and compares it with the kernel's own file alone; kernels and constants of other
modules that are compiled into it may have changed as well. So each kernel is kept in a folder named by a digest of its
module and of every module of its package that it imports.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba

__all__ = ["compiled", "kernel_folder"]


def compiled(function: Callable[..., Any]) -> Any:
    """Compile on first call; division by zero follows NumPy."""
    settings: Any = numba.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(kernel_folder(function))
    try:
        return numba.njit(cache=True, error_model="numpy")(function)
    finally:
        settings.CACHE_DIR = before


def kernel_folder(function: Callable[..., Any]) -> Path:
    """Where a kernel's machine code is kept: beside its package, or in the user's cache if that cannot be written."""
    path = Path(inspect.getfile(function)).resolve()
    package = path.parents[function.__module__.count(".") - 1]
    folder = package / "__pycache__"
    if not os.access(folder if folder.exists() else package, os.W_OK):
        folder = Path(os.environ.get("DAS_CACHE") or Path.home() / ".cache" / "das")
    return folder / "kernels" / _digest(path, package)[:16]


@cache
def _digest(module: Path, package: Path) -> str:
    """Digest of a module and of all modules of its package that it reaches by imports."""
    imports = re.compile(rf"^\s*(?:from|import) {package.name}\.([\w.]+)", flags=re.MULTILINE)
    found: dict[Path, bytes] = {}
    waiting = [module]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = path.read_bytes()
            waiting += [_path_of(package, name) for name in imports.findall(found[path].decode())]
    return sha256(b"".join(found[path] for path in sorted(found))).hexdigest()


def _path_of(package: Path, name: str) -> Path:
    path = package.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
