"""Exact numbers on their way to a reader: rounding whose direction the name says, and digests of plain data."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

__all__ = [
    "decimal_of",
    "decimal_upper",
    "delta_text",
    "digest_of",
    "digest_of_input",
    "float_upper",
    "quoted",
    "round_up",
]


def float_upper(value: Fraction) -> float:
    """Give the smallest float that is not below a rational.

    Examples
    --------
    >>> float_upper(Fraction(2)), Fraction(float_upper(Fraction(1, 10))) >= Fraction(1, 10)
    (2.0, True)
    """
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def decimal_of(value: float) -> Fraction:
    """Give the decimal that JSON prints for a float: a file and a page that read it so say the same.

    Examples
    --------
    >>> decimal_of(0.1)
    Fraction(1, 10)
    """
    return Fraction(repr(float(value)))


def decimal_upper(value: Fraction) -> float:
    """Give the smallest float whose decimal, as JSON prints it, is not below a rational.

    Examples
    --------
    >>> decimal_upper(Fraction(48, 25)), float_upper(Fraction(48, 25))
    (1.92, 1.9200000000000002)
    """
    near = float(value)
    while decimal_of(near) < value:
        near = math.nextafter(near, math.inf)
    return near


def quoted(value: Fraction | float | str | None) -> str:
    """Quote a number of the promise, in every file, page and terminal alike: what does not fit is rounded up.

    Three digits after the point, and three that count where it is below 0.1. A fraction may be given as text. Words
    stay as they are, and nothing is shown where there is none.

    Examples
    --------
    >>> quoted(17.143551), quoted("48/25"), quoted(1.9200000000000002), quoted(0.00012345), quoted(12345.6)
    ('17.144', '1.920', '1.921', '0.000124', '12,345.600')
    >>> quoted("infinite"), quoted(math.inf), quoted("not supported"), quoted(None)
    ('infinite', 'infinite', 'not supported', '')
    """
    if value is None or value == math.inf:
        return "" if value is None else "infinite"
    try:
        exact = Fraction(value) if isinstance(value, str | Fraction) else decimal_of(value)
    except ValueError:
        return str(value)
    digits = 3
    while 0 < exact < Fraction(100, 10**digits):
        digits += 1
    return f"{Decimal(math.ceil(exact * 10**digits)).scaleb(-digits):,f}"


def round_up(value: float, digits: int) -> str:
    """Print a number that may be quoted: the last digit is rounded up.

    Examples
    --------
    >>> round_up(17.143551, 4)
    '17.1436'
    """
    return f"{Decimal(math.ceil(Fraction(value) * 10**digits)).scaleb(-digits):.{digits}f}"


def delta_text(delta: Fraction | float) -> str:
    """Print a delta with three digits, rounded up.

    Examples
    --------
    >>> delta_text(Fraction(1, 10**10)), delta_text(Fraction(149, 10**11)), delta_text(1e-10)
    ('1e-10', '1.49e-9', '1e-10')
    """
    exact = Fraction(repr(delta)) if isinstance(delta, float) else delta
    power = math.floor(math.log10(exact)) if exact > 0 else 0
    digits = math.ceil(exact * Fraction(10) ** (2 - power))
    return f"{digits / 100:g}e{power}"


def digest_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of plain data in canonical JSON.

    Examples
    --------
    >>> digest_of({"b": 1, "a": 2}) == digest_of({"a": 2, "b": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_input(prints: list[dict[str, str]]) -> str:
    """SHA-256 over the contents of the files, whatever their names and folders.

    Examples
    --------
    >>> one, two = {"name": "a.csv", "sha256": "aa"}, {"name": "b.csv", "sha256": "bb"}
    >>> digest_of_input([one, two]) == digest_of_input([two, one | {"name": "c.csv"}])
    True
    """
    return hashlib.sha256("\n".join(sorted(each["sha256"] for each in prints)).encode()).hexdigest()
