"""Estimate integer counts from noisy measurements and public facts, one family of siblings at a time.

``README.md`` in this folder explains the method.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from das.estimation.families import SOLVERS, estimate_families, estimate_family

__all__ = ["SOLVERS", "estimate_families", "estimate_family"]


def __getattr__(name: str) -> Any:
    """Import the solvers when they are first used: linear estimates need no compiled kernel."""
    if name in __all__:
        return getattr(import_module("das.estimation.families"), name)
    raise AttributeError(f"module 'das.estimation' has no attribute {name!r}")
