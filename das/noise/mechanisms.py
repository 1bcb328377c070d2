"""The mechanisms that a plan may use, by the column of their parameter; a new one is an entry here.

A measurement file states its noise by a column: its name says which mechanism, its value the exact parameter. A column
that no mechanism has, or a level measured by two kinds of noise, is refused; nothing is taken for something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from das.errors import ConfigError, Problem
from das.noise.discrete_gaussian import DiscreteGaussian
from das.noise.discrete_laplace import DiscreteLaplace
from das.noise.two_sided import TwoSidedNoise as Mechanism

__all__ = ["FRAMEWORKS", "MECHANISMS", "Mechanism", "column_of", "mechanism_of"]

FRAMEWORKS: dict[str, type[Mechanism]] = {"zcdp": DiscreteGaussian, "pure": DiscreteLaplace}
"""Which noise spends the budget of a framework: rho by the discrete Gaussian, pure epsilon by the discrete Laplace."""

MECHANISMS: dict[str, type[Mechanism]] = {kind.column: kind for kind in (DiscreteGaussian, DiscreteLaplace)}
"""Mechanisms by the column that states their parameter."""


def column_of(mechanisms: Iterable[Mechanism]) -> str:
    """Return the column in which all of these state their parameter.

    Examples
    --------
    >>> column_of([DiscreteGaussian(4), DiscreteGaussian("9/2")])
    'sigma2'
    >>> column_of([DiscreteGaussian(4), DiscreteLaplace(2)])
    Traceback (most recent call last):
    das.errors.ConfigError: mechanism: one file cannot state scale and sigma2; measure a level with one kind of noise
    """
    kinds = {_known(type(mechanism)).column for mechanism in mechanisms}
    if len(kinds) != 1:
        reason = f"one file cannot state {' and '.join(sorted(kinds))}" if kinds else "nothing is measured"
        raise ConfigError(Problem("mechanism", reason, "measure a level with one kind of noise"))
    return kinds.pop()


def mechanism_of(column: str, value: str) -> Mechanism:
    """Read a mechanism back from the column and the text that state its parameter.

    Examples
    --------
    >>> mechanism_of("scale", "5/2")
    DiscreteLaplace(scale=Fraction(5, 2))
    >>> mechanism_of("width", "3")
    Traceback (most recent call last):
    das.errors.ConfigError: width: is not the parameter of a known mechanism; known are scale, sigma2
    """
    if column not in MECHANISMS:
        known = ", ".join(sorted(MECHANISMS))
        raise ConfigError(Problem(column, "is not the parameter of a known mechanism", f"known are {known}"))
    return MECHANISMS[column](Fraction(value))  # type: ignore[call-arg]  # each is made from its one parameter


def _known(kind: type[Mechanism]) -> type[Mechanism]:
    if MECHANISMS.get(getattr(kind, "column", "")) is not kind:
        raise ConfigError(
            Problem(kind.__name__, "is not a known mechanism", "add it to MECHANISMS with its proof note")
        )
    return kind
