"""Shipped settings: strategies and schemas of published releases, each with its source."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["folder", "names", "path", "read"]

ALIASES = {"pl94-2020": "pl94-2020-persons-us", "dhc-2020": "dhc-2020-persons-us"}


def folder() -> Path:
    """Where the shipped configs are: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    packaged = package / "_config"
    return packaged if packaged.is_dir() else package.parent / "config"


def names() -> tuple[str, ...]:
    """Names that ``preset = ...`` accepts."""
    files = (file.stem for file in sorted(folder().glob("*.toml")) if file.stem != "demo")
    return (*ALIASES, *files)


def path(name: str) -> Path:
    """Find the file of a preset."""
    return folder() / f"{ALIASES.get(name, name)}.toml"


@cache
def read(name: str) -> dict[str, Any]:
    """Read the plain content of a preset; one that names another for its schema has that one's.

    Examples
    --------
    >>> read("pl94-2020")["privacy"]["rho"]
    '293764/114921'
    """
    with path(name).open("rb") as file:
        content = tomllib.load(file)
    other = content.get("schema", {}).get("preset")
    return content | ({"schema": read(other)["schema"]} if other else {})
