"""What a change of the data costs, by kind of noise, before it is added up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from das.accounting.conditioned_tree import geometric_on_tree_upper
from das.accounting.conversion import rho_of_pure_upper

__all__ = ["Parts"]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What one change of the data costs, by kind of noise.

    Parameters
    ----------
    gaussian : Fraction
        Rho of all Gaussian noise, conditioned or not.
    pure, pure_rho : Fraction
        Epsilon and rho of noise of the Laplace kind that was not conditioned.
    conditioned : tuple of (Fraction, Fraction)
        For each release with conditioned noise of the Laplace kind: the loss of its noise before it was conditioned,
        and the smallest epsilon of one of its counts.
    """

    gaussian: Fraction = Fraction(0)
    pure: Fraction = Fraction(0)
    pure_rho: Fraction = Fraction(0)
    conditioned: tuple[tuple[Fraction, Fraction], ...] = ()

    def without_delta(self, steps: int) -> tuple[Fraction, Fraction]:
        """Epsilon of all that is not Gaussian, and its rho, when as many such changes are made together."""
        losses = [Fraction(geometric_on_tree_upper(steps * loss, least)) for loss, least in self.conditioned]
        rho = sum((Fraction(rho_of_pure_upper(loss)) for loss in losses), steps**2 * self.pure_rho)
        return sum(losses, steps * self.pure), rho

    @classmethod
    def largest(cls, parts: Iterable[Parts]) -> Parts:
        """Give the largest of each part: what several people who change in different ways cost at most, each."""
        listed = list(parts)
        return cls(
            gaussian=max((each.gaussian for each in listed), default=Fraction(0)),
            pure=max((each.pure for each in listed), default=Fraction(0)),
            pure_rho=max((each.pure_rho for each in listed), default=Fraction(0)),
            conditioned=tuple(map(max, zip(*(each.conditioned for each in listed), strict=True))),
        )
