"""When a number of a statement holds, as a value: the kind of condition, its words, and what holds otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from das.exact import quoted

__all__ = ["FACTS_IGNORED", "ONE_IS_ENOUGH", "Condition", "Kind"]

ONE_IS_ENOUGH = "one other record is always enough to keep the published bounds, which is assumed"


class Kind(StrEnum):
    """What a condition is about."""

    ALONE = "the change alone keeps every published bound"
    ONE_COMPENSATES = "one compensating record is enough"
    FACTS_IGNORED = "public facts ignored"
    PSEUDORANDOM = "the ciphers are unbroken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must be true for a number to hold, and the epsilon that holds where it is not.

    Parameters
    ----------
    kind : Kind
        What it is about.
    words : str
        Reads on after the number: "if ...", "as if ...".
    otherwise : float or str, optional
        Epsilon where the condition is not met, "infinite", or None: then nothing is claimed.
    otherwise_status : str
        On what grounds `otherwise` stands: proved, or numerically verified.
    otherwise_if : str
        What `otherwise` itself assumes; empty where it assumes nothing.

    Examples
    --------
    >>> condition = Condition(kind=Kind.ALONE, words="if the change alone keeps every bound", otherwise=26.4298)
    >>> condition.text()
    'if the change alone keeps every bound; otherwise epsilon 26.430 (proved)'
    >>> Condition.from_json(condition.to_json()) == condition
    True
    """

    kind: Kind
    words: str
    otherwise: float | str | None = None
    otherwise_status: str = "proved"
    otherwise_if: str = ""

    def text(self) -> str:
        """Say the condition and what holds otherwise, in one clause; epsilons are rounded up to three digits."""
        if self.kind is Kind.FACTS_IGNORED:
            return self.words
        return f"{self.words}; otherwise {self.otherwise_text()}"

    def otherwise_text(self) -> str:
        """Say the number that holds otherwise, with its status and what it assumes."""
        if self.otherwise is None:
            return "nothing is claimed"
        assumed = f", if {self.otherwise_if}" if self.otherwise_if else ""
        return f"epsilon {quoted(self.otherwise)} ({self.otherwise_status}{assumed})"

    def to_json(self) -> dict[str, Any]:
        """Give plain data, as ``privacy.json`` holds it."""
        return {
            "kind": str(self.kind),
            "words": self.words,
            "otherwise_epsilon": self.otherwise,
            "otherwise_status": self.otherwise_status,
            "otherwise_if": self.otherwise_if,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Condition:
        """Read what `to_json` wrote; an unknown kind is refused, never dropped."""
        return cls(
            kind=Kind(content["kind"]),
            words=content["words"],
            otherwise=content["otherwise_epsilon"],
            otherwise_status=content["otherwise_status"],
            otherwise_if=content["otherwise_if"],
        )


FACTS_IGNORED = Condition(
    kind=Kind.FACTS_IGNORED, words="as if nothing were public: no promise to readers who know the public facts"
)
"""The condition of every nominal number beside public facts."""
