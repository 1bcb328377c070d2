"""How a report writes numbers: epsilons and factors are rounded up, never down."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

from markupsafe import Markup

from das.exact import decimal_of, quoted

__all__ = [
    "UNKNOWN",
    "charge",
    "decisions",
    "fact",
    "factor_upper",
    "named",
    "number_of",
    "one_in_upper",
    "power_upper",
    "quoted_upper",
    "superscript",
]

UNKNOWN = "not supported"  # an accountant that does not know an event says so; it never says zero
DECIDED = {
    "lost": "accepted that entries of the ledger are lost; what they charged still counts",
    "distinct": "declared that these are other people than those of a data set that looks alike",
}
LARGE = ((10**15, "quadrillion"), (10**12, "trillion"), (10**9, "billion"), (10**6, "million"))


def number_of(value: object) -> Fraction | float | None:
    """Read a number of a statement: a fraction, infinity, or None for what is not a number.

    A float is the decimal that ``privacy.json`` prints for it, so that page and file say the same.

    Examples
    --------
    >>> number_of("293764/114921"), number_of(0.1), number_of(float("inf")), number_of("not supported")
    (Fraction(293764, 114921), Fraction(1, 10), inf, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Fraction):
        return None
    if value in (math.inf, "infinite"):
        return math.inf
    try:
        return decimal_of(value) if isinstance(value, float) else Fraction(value)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None


def quoted_upper(value: object) -> str:
    """Quote a privacy cost as `das.exact.quoted` does, with a sign for infinity; what is not known is never empty.

    Examples
    --------
    >>> quoted_upper(17.143551), quoted_upper("3/2"), quoted_upper(2.0000000000000004), quoted_upper(None)
    ('17.144', '1.500', '2.001', 'not supported')
    """
    number = number_of(value)
    if number is None:
        return UNKNOWN
    if isinstance(number, float):
        return "∞"
    return quoted(number)


def factor_upper(epsilon: Fraction | float) -> str:
    """Say e to the epsilon in words: two digits, rounded up.

    Examples
    --------
    >>> factor_upper(17.143551), factor_upper(0.5), factor_upper(8), factor_upper(60)
    ('28 million', '1.7', '3,000', '10 to the power 27')
    """
    loss = float(epsilon)
    if loss > math.log(10**18):
        return f"10 to the power {math.ceil(loss / math.log(10))}" if math.isfinite(loss) else "∞"
    factor = math.exp(loss) * (1 + 2.0**-40 if loss else 1)
    return _in_words(Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(factor))


def one_in_upper(probability: Fraction) -> str:
    """Write a small probability as one in so many, rounded so that the probability grows.

    Examples
    --------
    >>> one_in_upper(Fraction(1, 10**10)), one_in_upper(Fraction(1, 1_299))
    ('1 in 10 billion', '1 in 1,200')
    """
    if probability < Fraction(1, 10**18):
        return f"1 in 10 to the power {len(str(math.floor(1 / probability))) - 1}"
    many = Context(prec=2, rounding=ROUND_FLOOR).create_decimal(math.floor(1 / probability))
    return f"1 in {_in_words(many)}"


def power_upper(probability: Fraction) -> Markup:
    """Write a small probability as a power of ten, its two digits rounded up.

    Examples
    --------
    >>> power_upper(Fraction(1, 10**10)), power_upper(Fraction(1, 7 * 10**6))
    (Markup('10<sup>−10</sup>'), Markup('1.5 × 10<sup>−7</sup>'))
    """
    context = Context(prec=2, rounding=ROUND_CEILING)
    rounded = context.divide(Decimal(probability.numerator), Decimal(probability.denominator))
    digits = _plain(rounded.scaleb(-rounded.adjusted()))
    power = Markup("10<sup>−{}</sup>").format(-rounded.adjusted())
    return power if digits == "1" else Markup("{} × {}").format(digits, power)


def superscript(number: int) -> str:
    """Write a whole number small and high.

    Examples
    --------
    >>> "10" + superscript(-10)
    '10⁻¹⁰'
    """
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def named(text: str) -> str:
    """Give a query or a level the form in which it is read.

    Examples
    --------
    >>> named("votingage * hispanic"), named("block_group")
    ('votingage × hispanic', 'block group')
    """
    return text.replace("*", "×").replace("_", " ")


def fact(entry: object) -> str:
    """Write an entry of a list of facts: plain text, or a record with query and level.

    Examples
    --------
    >>> fact("nurse_nva_0"), fact({"query": "total", "level": "block_group"}), fact(["block_group", "total"])
    ('nurse_nva_0', 'total of each block group', 'total of each block group')
    >>> fact({"sequence": 3, "kind": "charge"})
    'sequence: 3, kind: charge'
    """
    match entry:
        case {"level": level, "query": query} | [level, query]:
            return f"{named(str(query))} of each {named(str(level))}"
        case Mapping():
            return ", ".join(f"{key}: {value}" for key, value in entry.items())
        case _:
            return str(entry)


def charge(entry: Mapping[str, object]) -> str:
    """Write the charge of a ledger's entry; what a person decided about the ledger is said in sentences of its own.

    Examples
    --------
    >>> charge({"kind": "commit", "decisions": [{"kind": "lost", "day": "2030-01-02", "reason": "fire"}]})
    'kind: commit'
    """
    return fact({key: value for key, value in entry.items() if key != "decisions"})


def decisions(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Say each decision that a person made about the ledger before a release was charged, with its reason.

    Examples
    --------
    >>> decisions({"decisions": [{"kind": "distinct", "day": "2030-01-02", "reason": "another census"}]})
    ('On 2030-01-02 somebody declared that these are other people than those of a data set that looks alike. Reason
    given: another census.',)
    """
    return tuple(
        f"On {each['day']} somebody {DECIDED[each['kind']]}. Reason given: {each['reason'].rstrip('.')}."
        for each in entry.get("decisions", ())
    )


def _in_words(number: Decimal) -> str:
    for size, name in LARGE:
        if number >= size:
            return f"{_plain(number / size)} {name}"
    return _plain(number)


def _plain(number: Decimal) -> str:
    text = f"{number:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
