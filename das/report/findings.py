"""What a verb found: plain data that prints as the text a person reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

__all__ = ["Findings"]


@dataclass(frozen=True, repr=False, eq=False)
class Findings(Mapping[str, Any]):
    """A mapping with the keys that ``--json`` prints; shown as text, in a notebook too.

    Examples
    --------
    >>> found = Findings({"ok": True}, "config, geography and input fit together")
    >>> found
    config, geography and input fit together
    >>> found["ok"], list(found)
    (True, ['ok'])
    """

    content: Mapping[str, Any]
    text: str

    def __getitem__(self, key: str) -> Any:
        """Return one entry."""
        return self.content[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys."""
        return iter(self.content)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.content)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"
