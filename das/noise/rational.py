"""Parse noise parameters as exact rationals; floats are refused."""

from __future__ import annotations

from fractions import Fraction

from das.errors import ConfigError, Problem

Rational = int | Fraction | str


def positive_rational(value: Rational, where: str) -> Fraction:
    """Return `value` as a positive Fraction, or say why it cannot be one.

    A float is refused even when it looks round: 0.1 is not 1/10, and the privacy cost of a mechanism is computed
    from the very number its sampler uses.

    Parameters
    ----------
    value : int, Fraction or str
        A string is read as ``"3/2"``, ``"1.5"`` or ``"7"``.
    where : str
        The name of the parameter, for the error message.

    Examples
    --------
    >>> positive_rational("3/2", "sigma2")
    Fraction(3, 2)
    >>> positive_rational(1.5, "sigma2")
    Traceback (most recent call last):
    das.errors.ConfigError: sigma2: 1.5 is a float, which is not exact; write a rational such as "3/2"
    """
    remedy = 'write a rational such as "3/2"'
    if isinstance(value, float):
        raise ConfigError(Problem(where, f"{value!r} is a float, which is not exact", remedy))
    if isinstance(value, bool) or not isinstance(value, (int, Fraction, str)):
        raise ConfigError(Problem(where, f"a {type(value).__name__} is not a rational", remedy))
    try:
        exact = Fraction(value)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(Problem(where, f"{value!r} is not a rational", remedy)) from None
    if exact <= 0:
        raise ConfigError(Problem(where, f"{exact} is not positive", "noise needs a parameter above zero"))
    return exact
