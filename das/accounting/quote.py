"""A number as a statement quotes it: what it is about, its status, and its condition, as one value.

``privacy.json`` holds these values; the terminal and the page are rendered from them. So the three cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from das.accounting.condition import Condition
from das.accounting.tradeoff import Learnt

__all__ = ["GROUPS", "Number", "Quote", "quotes_of", "reasons_of"]

Number = float | str | None
"""A float; words where there is no number ("infinite", "not supported"); None where none is meant."""

GROUPS: Mapping[str, tuple[tuple[str, ...], str]] = MappingProxyType(
    {
        "nominal": ((), "nominal: any record, anywhere, as if nothing were public"),
        "tight": ((), "nominal on this geography, by exact distributions"),
        "effective": (("policy", "a"), "policy {policy}"),
        "secrets": (("secret",), "{secret}"),
        "attributes": (("attribute",), "attribute {attribute} alone"),
        "geography": (("of", "within"), "place alone: another {of} within the same {within}"),
        "families": (("secret", "people"), "{people} people, each: {secret}"),
    }
)
"""Sections of a statement that quote numbers: the keys that say what an entry is about, and its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """One number of a statement.

    Parameters
    ----------
    group : str
        A key of `GROUPS`: the section in which it stands.
    about : mapping
        The keys of that section, such as the policy or the attribute.
    epsilon, rho, pure_epsilon, tight_epsilon, nominal_epsilon : Number
        The epsilon that is promised; what it was computed from; the same from exact distributions; and the same if
        nothing were public. Each is rounded up.
    status : str
        On what grounds.
    condition : Condition, optional
        When it holds, and what holds otherwise; None where it always does.
    assumptions : tuple of str
        What it takes for granted beside the plan.
    learnt : Learnt, optional
        What an attacker learns at most, from the whole trade-off.
    added_delta : float, optional
        Delta beside an epsilon of pure DP, and beside what holds otherwise: a sampler's windows add it. Rounded up.
    reason : str
        Why there is no number, where the status is "not supported".

    Examples
    --------
    >>> quote = Quote.from_json("attributes", {"attribute": "sex", "epsilon": 1.5, "status": "proved"})
    >>> quote.name, quote.condition, quote.to_json()["epsilon"]
    ('attribute sex alone', None, 1.5)
    """

    group: str
    about: Mapping[str, Any]
    epsilon: Number
    status: str
    rho: Number = None
    pure_epsilon: Number = None
    tight_epsilon: Number = None
    nominal_epsilon: Number = None
    condition: Condition | None = None
    assumptions: tuple[str, ...] = ()
    learnt: Learnt | None = None
    added_delta: float | None = None
    reason: str = ""
    rest: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the entry, such as delta and method, kept as they are."""

    @property
    def name(self) -> str:
        """What the number is about, in words; terminal and page use the same."""
        words = GROUPS[self.group][1].format_map({"of": "place", **self.about})
        return f"{words}, a(t) = {self.about['a']}" if self.about.get("a") else words

    def to_json(self) -> dict[str, Any]:
        """Give the entry of ``privacy.json``."""
        return {
            **self.about,
            "rho": self.rho,
            "pure_epsilon": self.pure_epsilon,
            "epsilon": self.epsilon,
            "tight_epsilon": self.tight_epsilon,
            "nominal_epsilon": self.nominal_epsilon,
            **({"added_delta": self.added_delta} if self.added_delta else {}),
            "status": self.status,
            **({"reason": self.reason} if self.reason else {}),
            "condition": self.condition.to_json() if self.condition else None,
            "assumptions": list(self.assumptions),
            "learnt": self.learnt.to_json() if self.learnt else None,
            **self.rest,
        }

    @classmethod
    def from_json(cls, group: str, entry: Mapping[str, Any]) -> Quote:
        """Read an entry; keys that a statement leaves out are taken to be absent, never to be zero."""
        keys = GROUPS[group][0]
        condition, learnt = entry.get("condition"), entry.get("learnt")
        known = (
            "rho",
            "pure_epsilon",
            "epsilon",
            "tight_epsilon",
            "nominal_epsilon",
            "added_delta",
            "status",
            "assumptions",
            "reason",
        )
        return cls(
            group=group,
            about={key: entry[key] for key in keys if key in entry},
            epsilon=entry.get("epsilon"),
            status=entry.get("status") or "not stated",
            rho=entry.get("rho"),
            pure_epsilon=entry.get("pure_epsilon"),
            tight_epsilon=entry.get("tight_epsilon"),
            nominal_epsilon=entry.get("nominal_epsilon"),
            added_delta=entry.get("added_delta"),
            condition=Condition.from_json(condition) if condition else None,
            assumptions=tuple(entry.get("assumptions", ())),
            learnt=Learnt.from_json(learnt) if learnt else None,
            reason=entry.get("reason") or "",
            rest={k: v for k, v in entry.items() if k not in (*keys, *known, "condition", "learnt", "reason")},
        )


def reasons_of(quotes: Iterable[Quote]) -> tuple[str, ...]:
    """List why numbers are not there, each reason once; terminal and page say them below their tables.

    Examples
    --------
    >>> reasons_of([Quote(group="nominal", about={}, epsilon=None, status="not supported", reason="facts cross")])
    ('not supported: facts cross',)
    """
    return tuple(dict.fromkeys(f"{quote.status}: {quote.reason}" for quote in quotes if quote.reason))


def quotes_of(statement: Mapping[str, Any]) -> Iterator[Quote]:
    """Read every number that a statement quotes, section by section; a section that it leaves out is left out.

    Examples
    --------
    >>> rows = {"nominal": {"epsilon": 2.0, "status": "proved"}, "effective": [{"policy": "semi", "a": 2}]}
    >>> [quote.name for quote in quotes_of(rows)]
    ['nominal: any record, anywhere, as if nothing were public', 'policy semi, a(t) = 2']
    """
    for group in GROUPS:
        found = statement.get(group) or ()
        for entry in (found,) if isinstance(found, Mapping) else found:
            yield Quote.from_json(group, entry)
