"""The verdict of one check: what was looked at, what was found, and whether it fits the promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Check", "Verdict"]

Verdict = Literal["consistent", "VIOLATED", "not checked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of the running program.

    Parameters
    ----------
    name : str
        What is checked, as a sentence that should be true.
    verdict : str
        ``VIOLATED`` if it is refuted at the stated confidence.
    detail : str
        What was found.
    """

    name: str
    verdict: Verdict
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"name": self.name, "verdict": self.verdict, "detail": self.detail}
