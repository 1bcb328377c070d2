"""Numba kernels, compiled once per machine and recompiled when any of their sources change.

Numba keeps machine code under a folder and compares it with the kernel's own file alone; kernels and constants of other
modules that are compiled into it may have changed as well. So each kernel is kept in a folder named by a digest of its
module and of every module of its package that it imports. Folders of earlier sources are deleted when a new one is made
and they were not used for a month.
"""

from __future__ import annotations

import gc
import inspect
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["LEAN_VERSIONS", "compiled", "compiled_part", "kernel_folder", "kernel_root", "kernels_are_compiled"]

_PACKAGE = Path(__file__).resolve().parent
LEAN_VERSIONS = ("0.68.",)
"""Versions of Numba whose compilation is known to allow what :func:`_compile_lean` does to it."""
_DAY = 86_400.0
_KEPT = 30 * _DAY
"""Seconds for which machine code of earlier sources is kept after its last use."""


def compiled(function: Callable[..., Any]) -> Any:
    """Compile on first call; division by zero follows NumPy."""
    import numba

    _compile_lean()
    folder = kernel_folder(function)
    _mark_used(folder)
    settings: Any = numba.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(folder)
    try:
        return numba.njit(cache=True, error_model="numpy")(function)
    finally:
        settings.CACHE_DIR = before


def compiled_part(function: Callable[..., Any]) -> Any:
    """Compile as part of the kernels that call it, and keep it with them; Python calls it as it is written, slowly.

    A kernel's functions are parts unless Python calls them often: a part has no entry from Python and no machine code
    of its own, and is optimised once, where it is used.
    """
    from numba.extending import register_jitable

    _compile_lean()
    return register_jitable(error_model="numpy", no_cfunc_wrapper=True)(function)


@cache
def _compile_lean() -> None:
    """Have Numba compile the parts of a kernel once, as parts of it, and not by themselves as well.

    For every function that a kernel calls Numba makes machine code of its own, which nothing uses, and optimises it
    again in the kernel and in each function between. Here a part is only linked, and optimised as part of the kernel.
    The collector of cycles waits meanwhile: it would look through all that Numba holds, and find little.

    This replaces methods of Numba that are not documented, so it is done for versions of Numba that were tried. With
    another, kernels compile as ever, in about twice the time.
    """
    import numba

    if not numba.__version__.startswith(LEAN_VERSIONS):
        return
    codegen: Any = import_module("numba.core.codegen")
    event: Any = import_module("numba.core.event")

    class Stack(event.Listener):  # type: ignore[misc]
        """Functions that are being compiled, each for the one before: whether Python cannot call them."""

        def __init__(self) -> None:
            self.parts: list[bool] = []
            self.collecting = True

        def on_start(self, event: Any) -> None:
            if not self.parts:
                self.collecting = gc.isenabled()
                gc.disable()
            self.parts.append(bool(event.data["dispatcher"].targetoptions.get("no_cpython_wrapper")))

        def on_end(self, event: Any) -> None:
            self.parts.pop()
            if not self.parts and self.collecting:
                gc.enable()

        def compiles_a_part(self) -> bool:
            return bool(self.parts) and self.parts[-1]

    stack = Stack()
    finalize = codegen.CPUCodeLibrary.finalize
    pointer = codegen.JITCodeLibrary.get_pointer_to_function
    set_env = codegen.JITCPUCodegen.set_env

    def finalize_or_link(library: Any) -> None:
        if not stack.compiles_a_part():
            finalize(library)
            return
        for linked in dict.fromkeys(library._linking_libraries):
            library._reload_init.update(linked._reload_init)
            library._final_module.link_in(linked._get_module_for_linking(), preserve=True)
        library._finalized = True

    def pointer_or_null(library: Any, name: str) -> int:
        if not stack.compiles_a_part():
            return int(pointer(library, name))
        library._ensure_finalized()
        return 0

    def set_env_or_none(target: Any, name: str, environment: object) -> None:
        if not stack.compiles_a_part():
            set_env(target, name, environment)

    codegen.CPUCodeLibrary.finalize = finalize_or_link
    codegen.JITCodeLibrary.get_pointer_to_function = pointer_or_null
    codegen.JITCPUCodegen.set_env = set_env_or_none
    event.register("numba:compile", stack)


def kernel_folder(function: Callable[..., Any]) -> Path:
    """Where a kernel's machine code is kept: beside its package, or in the user's cache if that cannot be written."""
    path = Path(inspect.getfile(function)).resolve()
    return _folder(path, path.parents[function.__module__.count(".") - 1])


def kernels_are_compiled(module: str = "das.estimation.solvers.active_set.kernel") -> bool:
    """Whether machine code is there for the present sources of a module's kernels; by default, the active-set solver's.

    Nothing is imported or compiled, so a command can ask before it runs and announce the compilation.
    """
    path = _path_of(_PACKAGE, module.removeprefix(f"{_PACKAGE.name}."))
    return any(_folder(path, _PACKAGE).rglob(f"{path.stem}.*.nbc"))


def kernel_root(package: Path = _PACKAGE) -> Path:
    """Where the machine code of all kernels of a package is kept."""
    folder = package / "__pycache__"
    if not os.access(folder if folder.exists() else package, os.W_OK):
        folder = Path(os.environ.get("DAS_CACHE") or Path.home() / ".cache" / "das")
    return folder / "kernels"


def _folder(module: Path, package: Path) -> Path:
    return kernel_root(package) / _digest(module, package)[:16]


def _mark_used(folder: Path) -> None:
    """Note in a folder's time that it is used; before a new one is made, delete those that were not for a month."""
    now = time.time()
    with suppress(OSError):
        if folder.exists():
            if now - folder.stat().st_mtime > _DAY:
                os.utime(folder)
            return
        for other in folder.parent.iterdir():
            if now - other.stat().st_mtime > _KEPT:
                shutil.rmtree(other, ignore_errors=True)


@cache
def _digest(module: Path, package: Path) -> str:
    """Digest of a module and of all modules of its package that it reaches by imports."""
    imports = re.compile(rf"^\s*(?:from|import) {package.name}\.([\w.]+)", flags=re.MULTILINE)
    sources: dict[Path, bytes] = {}
    waiting = [module]
    while waiting:
        path = waiting.pop()
        if path not in sources:
            sources[path] = path.read_bytes()
            waiting += [_path_of(package, name) for name in imports.findall(sources[path].decode())]
    return sha256(b"".join(sources[path] for path in sorted(sources))).hexdigest()


def _path_of(package: Path, name: str) -> Path:
    path = package.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
