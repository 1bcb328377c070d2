"""Conditions as footnotes: each is said once below a table, and every number that has it carries its mark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from das.accounting.condition import Condition, Kind
from das.accounting.quote import Quote
from das.exact import delta_text

__all__ = ["Footnotes", "added_delta_sentence", "footnote_of"]

Key = tuple[str, ...]


def added_delta_sentence(quotes: Iterable[Quote]) -> str:
    """Say which delta a sampler's windows add to epsilons of pure DP; empty where none is added.

    Examples
    --------
    >>> quote = Quote(group="nominal", about={}, epsilon=1.0, status="proved", added_delta=1.7e-24)
    >>> added_delta_sentence([quote])
    "delta: at most 1.7e-24 beside each effective epsilon, which the sampler's windows add"
    """
    listed = [(quote.group == "families", quote.added_delta) for quote in quotes if quote.added_delta]
    single, shared = (max((each for of, each in listed if of is family), default=0.0) for family in (False, True))
    parts = [f"at most {delta_text(single)} beside each effective epsilon"] if single else []
    parts += [f"at most {delta_text(shared)} beside those of families"] if shared else []
    return f"delta: {', '.join(parts)}, which the sampler's windows add" if parts else ""


@dataclass(frozen=True, slots=True)
class Footnotes:
    """The different conditions of some numbers; the number that holds otherwise stands beside each number itself.

    Examples
    --------
    >>> condition = Condition(kind=Kind.ALONE, words="if the change alone keeps every bound", otherwise=2.0)
    >>> quote = Quote(group="nominal", about={}, epsilon=1.0, status="proved", condition=condition)
    >>> notes = Footnotes.of([quote])
    >>> notes.mark(quote), notes.texts
    ('1', ('if the change alone keeps every bound; otherwise the number under "otherwise" (proved)',))
    """

    numbers: Mapping[Key, int]

    @classmethod
    def of(cls, quotes: Iterable[Quote]) -> Footnotes:
        """Number the conditions in the order in which they come up."""
        found = dict.fromkeys(_key(quote.condition) for quote in quotes if quote.condition)
        return cls({key: number for number, key in enumerate(found, 1)})

    def mark(self, quote: Quote) -> str:
        """Give the mark of a number; empty where it has no condition."""
        return str(self.numbers[_key(quote.condition)]) if quote.condition else ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The footnotes, in the order of their marks."""
        return tuple(_text(key) for key in self.numbers)


def footnote_of(condition: Condition) -> str:
    """Say a condition below a table in which what holds otherwise has a column.

    Examples
    --------
    >>> footnote_of(Condition(kind=Kind.ALONE, words="if it rains"))
    'if it rains; otherwise nothing is claimed'
    """
    return _text(_key(condition))


def _key(condition: Condition) -> Key:
    known = "" if condition.otherwise is None else "known"
    return condition.kind, condition.words, known, condition.otherwise_status, condition.otherwise_if


def _text(key: Key) -> str:
    kind, words, known, status, assumed = key
    if kind == Kind.FACTS_IGNORED:
        return words
    if not known:
        return f"{words}; otherwise nothing is claimed"
    return f'{words}; otherwise the number under "otherwise" ({status}{f", if {assumed}" if assumed else ""})'
