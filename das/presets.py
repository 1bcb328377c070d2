"""Shipped settings: strategies and schemas of published releases, each with its source."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["folder", "names", "read"]

ALIASES = {"pl94-2020": "pl94-2020-persons-us"}


def folder() -> Path:
    """Where the shipped configs are: inside the installed package, or beside it in a checkout."""
    packaged = Path(__file__).parent / "_config"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "config"


def names() -> tuple[str, ...]:
    """Names that ``preset = ...`` accepts."""
    files = (path.stem for path in sorted(folder().glob("*.toml")) if path.stem != "demo")
    return (*ALIASES, *files)


@cache
def read(name: str) -> dict[str, Any]:
    """Read the plain content of a preset.

    Examples
    --------
    >>> read("pl94-2020")["privacy"]["rho"]
    '293764/114921'
    """
    with (folder() / f"{ALIASES.get(name, name)}.toml").open("rb") as file:
        return tomllib.load(file)
