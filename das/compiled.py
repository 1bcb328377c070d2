"""Numba kernels, compiled once per machine and recompiled when any of their sources change.

Numba keeps machine code under a folder and compares it with the kernel's own file alone; kernels and constants of other
modules that are compiled into it may have changed as well. So each kernel is kept in a folder named by a digest of its
module and of every module of its package that it imports. Folders of earlier sources are deleted when a new one is made
and they were not used for a month.

Numba unpickles what it finds in such a folder, and runs it: whoever could write there would have this user's rights. So
machine code that others may have changed is deleted, and a folder that they may replace is closed to them, or refused.
"""

from __future__ import annotations

import fcntl
import gc
import inspect
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from das.errors import Problem, UsageError

__all__ = [
    "compiled",
    "compiled_part",
    "kernel_folder",
    "kernel_root",
    "kernels_are_compiled",
]

_PACKAGE = Path(__file__).resolve().parent
_DAY = 86_400.0
_KEPT = 30 * _DAY
"""Seconds for which machine code of earlier sources is kept after its last use."""

NUMBA_WITH_LINKED_PARTS = "0.68.1"
"""The Numba whose private names `_parts_are_linked` knows; with another one compilation takes half as long again."""

_entries: set[str] = set()
"""Names of the functions that Python calls, so that they need machine code of their own."""

_compiling: list[Callable[..., Any]] = []
"""The kernel that is compiled now; whoever holds the compiler's lock may read and change it."""


def compiled(function: Callable[..., Any]) -> Any:
    """Compile on first call, or load the machine code that is kept; division by zero follows NumPy.

    Of several processes one compiles, and the others wait and load what it kept. The collector of cycles waits as well:
    it would look through all that Numba holds, and find little.
    """
    import numba
    from numba.core.compiler_lock import global_compiler_lock

    folder = kernel_folder(function)
    _mark_used(folder)
    _close_to_others(folder)
    _entries.add(function.__qualname__)
    settings: Any = numba.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(folder)
    try:
        kernel: Any = numba.njit(cache=True, error_model="numpy")(function)
    finally:
        settings.CACHE_DIR = before
    compile_ = kernel.compile

    def compile_alone(signature: Any) -> Any:
        with global_compiler_lock:
            if _compiling:  # another kernel, which calls this one
                return compile_(signature)
            with _alone_in(folder), _parts_are_linked(), _without_collection():
                _compiling.append(function)
                try:
                    return compile_(signature)
                finally:
                    _compiling.pop()

    kernel.compile = compile_alone
    return kernel


def compiled_part(function: Callable[..., Any]) -> Any:
    """Compile as part of the kernels that call it, and keep it with them; Python calls it as it is written, slowly.

    Without machine code of its own it takes far less time.
    """
    from numba.extending import register_jitable

    return register_jitable(error_model="numpy", no_cfunc_wrapper=True)(function)


@contextmanager
def _without_collection() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def _parts_are_linked() -> Iterator[None]:
    """Give no machine code to functions that only kernels call, while a kernel is compiled.

    Numba optimises and emits every function together with all that it calls, and all of it again for each function
    above. A part is linked into its kernel as it stands, and optimised once, with the kernel. The caller holds the
    compiler's lock: another thread would compile its functions without machine code.
    """
    import numba
    from numba.core import codegen

    if numba.__version__ != NUMBA_WITH_LINKED_PARTS:
        yield
        return
    library: Any = codegen.CPUCodeLibrary
    generator: Any = codegen.JITCPUCodegen
    optimise, emit, set_environment = library._optimize_final_module, library._finalize_final_module, generator.set_env

    def optimise_entry(self: Any) -> None:
        if self.name in _entries:
            optimise(self)

    def emit_entry(self: Any) -> None:
        if self.name in _entries:
            emit(self)
        else:
            self._finalize_dynamic_globals()
            self._finalized = True

    def set_environment_of_entry(self: Any, name: str, environment: Any) -> None:
        if self._engine.is_symbol_defined(name):
            set_environment(self, name, environment)

    library._optimize_final_module, library._finalize_final_module = optimise_entry, emit_entry
    generator.set_env = set_environment_of_entry
    try:
        yield
    finally:
        library._optimize_final_module, library._finalize_final_module = optimise, emit
        generator.set_env = set_environment


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is here; the lock ends with the process, however it ends."""
    descriptor = -1
    with suppress(OSError):  # a folder that cannot be made, or a file system without locks: every process compiles
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


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


def _close_to_others(folder: Path) -> None:
    """See to it that a folder of machine code exists, and that nobody but its owner can change what is in it."""
    root = folder.parent
    _require_own(root)
    owners = _trusted(root)
    with suppress(FileNotFoundError):
        found = [path.lstat() for path in (folder, *folder.rglob("*"))]
        reached = bool(found[0].st_mode & 0o077)
        if any(each.st_uid not in owners or (reached and _others_may_write(each)) for each in found):
            shutil.rmtree(folder)
    with suppress(OSError):  # it is there, or cannot be made
        folder.mkdir(mode=0o755 if _beside_package(root) and _umask() & 0o022 == 0o022 else 0o700)


@cache
def _require_own(root: Path) -> None:
    """Make the folder of all kernels, and refuse one that others could put another in the place of."""
    above = [root.parent] if _beside_package(root) or "DAS_CACHE" in os.environ else [root.parent.parent, root.parent]
    owners = _trusted(root)
    for path in (*above, root):
        with suppress(OSError):
            path.mkdir(mode=0o755 if _beside_package(root) else 0o700, parents=True)
        if not path.exists():
            return  # every process compiles for itself
        found = path.stat()
        if found.st_uid in owners and _others_may_write(found):
            with suppress(OSError):
                path.chmod(stat.S_IMODE(found.st_mode) & ~0o022)
            found = path.stat()
        if found.st_uid not in owners or _others_may_write(found):
            reason = "others may write it, and so put code into the compiled kernels that das loads from it"
            remedy = f"run `chmod go-w {path}` as its owner, or name a folder of your own with DAS_CACHE"
            raise UsageError(Problem(str(path), reason, remedy))


def _trusted(root: Path) -> set[int]:
    """Users whose machine code is loaded: this one, the administrator and, beside a package, the package's owner."""
    return {os.geteuid(), 0, *([root.parents[1].stat().st_uid] if _beside_package(root) else [])}


def _beside_package(root: Path) -> bool:
    return root.parent.name == "__pycache__"


def _others_may_write(found: os.stat_result) -> bool:
    return bool(found.st_mode & 0o022) and not found.st_mode & stat.S_ISVTX


def _umask() -> int:
    """The umask of this process, read without changing it."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"^Umask:\s*(\d+)", status, flags=re.MULTILINE)
    return int(found.group(1), 8) if found else 0


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
