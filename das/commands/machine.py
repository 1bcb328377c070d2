"""What this machine offers to a release: versions, cores, memory, disk, and what the runner finds."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from das.compiled import kernels_are_compiled
from das.errors import ProblemsFound
from das.runner import Finding, find_runner

__all__ = ["findings"]

PACKAGES = ("numpy", "scipy", "numba", "pyarrow", "pandas", "cvxpy", "ortools", "networkx")
GIB = 2**30


def findings() -> list[Finding]:
    """List what was found; nothing is changed, and nothing is sent anywhere."""
    return [
        Finding("das", _version("das")),
        Finding("python", f"{platform.python_version()} on {platform.system()} {platform.release()}"),
        Finding("packages", ", ".join(f"{name} {_version(name)}" for name in PACKAGES)),
        Finding("cores", str(len(os.sched_getaffinity(0))), "`-- --runner=multi-process` uses them all"),
        Finding("memory", _memory()),
        Finding(
            "temporary folder",
            f"{tempfile.gettempdir()}, {shutil.disk_usage(tempfile.gettempdir()).free / GIB:.1f} GiB free",
        ),
        Finding(
            "kernels",
            "compiled" if kernels_are_compiled() else "not compiled",
            "" if kernels_are_compiled() else "the first run compiles them, once",
        ),
        *_of_the_runner(),
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _memory() -> str:
    """Total and available memory, as the kernel tells them."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        kib = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
        return f"{kib['MemTotal'] * 1024 / GIB:.1f} GiB, {kib['MemAvailable'] * 1024 / GIB:.1f} GiB available"
    except (OSError, KeyError, ValueError):
        return "not known"


def _of_the_runner() -> list[Finding]:
    try:
        runner = find_runner()
    except ProblemsFound as error:
        return [Finding("runner", "none", str(error.problems[0]))]
    ask = getattr(runner, "findings", None)
    return list(ask()) if ask else []
