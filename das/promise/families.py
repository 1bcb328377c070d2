"""Group privacy: what is promised to the members of a family together, who may share a secret."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from das.accounting.events import NotSupported
from das.accounting.moves import Secret
from das.accounting.policies import Guarantee
from das.accounting.quote import Quote
from das.promise.lines import Lines, quoted_epsilon

__all__ = ["FAMILIES", "family_lines"]

FAMILIES = (2, 3, 4, 5, 6)


def family_lines(lines: Lines, secrets: Sequence[Secret]) -> Iterator[Quote]:
    """Quote the smallest and the largest secret for families of two to six.

    Each member's record changes as the secret allows: sqrt(rho) and epsilon grow at most with the number of members
    (``das/accounting/moves.md``). Where a bound makes other records change along, there are at most as many of them
    (``das/accounting/bounds.md``), and the number of as many pairs holds.
    """
    unordered = NotSupported("which moves of several records are worst is proved for zCDP and pure DP only")
    for secret in dict.fromkeys((secrets[0], secrets[-1])):
        for people in FAMILIES:
            about = {"secret": secret.name, "people": people}
            yield lines.line("families", about, _of_family(lines, secret, people), unordered)


def _of_family(lines: Lines, secret: Secret, people: int) -> Guarantee:
    """Scale the guarantee of one member, and the number that holds otherwise."""
    found, pairs = lines.group(secret, people)
    condition = lines.about(secret).condition
    if condition is None or found.epsilon is None:
        return found
    return replace(
        found,
        condition=replace(
            condition, words="if the changes alone keep every published bound", otherwise=quoted_epsilon(pairs)
        ),
        added_delta=max(found.added_delta, pairs.added_delta),
    )
