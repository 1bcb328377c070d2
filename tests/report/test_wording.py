"""What a report quotes is never smaller than what is meant, and hardly larger."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.exact import decimal_upper, quoted
from das.report.wording import factor_upper, number_of, one_in_upper, power_upper, quoted_upper

SIZES = {"million": 10**6, "billion": 10**9, "trillion": 10**12, "quadrillion": 10**15}


def meant(words: str) -> Fraction:
    """Read the words back, independently of how they were made."""
    if power := re.fullmatch(r"10 to the power (\d+)", words):
        return Fraction(10) ** int(power[1])
    number, _, size = words.partition(" ")
    return Fraction(number.replace(",", "")) * SIZES.get(size, 1)


@given(st.fractions(min_value=0, max_value=10**6) | st.fractions(min_value=0, max_value=Fraction(1, 1000)))
def test_a_quote_is_the_next_decimal_at_or_above(value: Fraction) -> None:
    quote = Fraction(quoted_upper(value).replace(",", ""))
    step = min(Fraction(1, 1000), value / 100) if value else Fraction(1, 1000)
    assert value <= quote < value + step


@given(st.fractions(min_value=0, max_value=10**6))
def test_a_rational_is_written_to_json_as_a_decimal_that_is_not_below_it(value: Fraction) -> None:
    written = Fraction(repr(decimal_upper(value)))
    assert value <= written <= value * (1 + Fraction(1, 2**51))
    assert quoted(decimal_upper(Fraction(48, 25))) == quoted("48/25") == "1.920"


@given(st.floats(min_value=0, max_value=1e6))
def test_a_float_is_quoted_as_the_decimal_that_json_prints(value: float) -> None:
    assert Fraction(repr(value)) <= Fraction(quoted_upper(value).replace(",", ""))


def test_rounding_up_would_be_noticed_if_it_were_to_nearest() -> None:
    assert quoted_upper(17.1430001) == "17.144"
    assert quoted_upper(17.143) == "17.143"
    assert factor_upper(math.log(2.01)) == "2.1"


@given(st.floats(min_value=0, max_value=300))
def test_a_factor_bounds_the_exponential(epsilon: float) -> None:
    factor, slack = meant(factor_upper(epsilon)), 10 if epsilon > 41 else 1.11
    assert math.exp(epsilon) * (1 - 1e-12) <= factor <= math.exp(epsilon) * slack


@given(st.fractions(min_value=Fraction(1, 10**30), max_value=Fraction(1, 2)))
def test_a_chance_in_words_or_as_a_power_bounds_the_probability(probability: Fraction) -> None:
    words = 1 / meant(one_in_upper(probability).removeprefix("1 in "))
    leading, _, power = str(power_upper(probability)).rpartition("10<sup>−")
    figure = Fraction(leading.removesuffix(" × ") or 1) / 10 ** int(power.removesuffix("</sup>"))
    assert probability <= words <= probability * (10 if probability < Fraction(1, 10**18) else 2)
    assert probability <= figure <= probability * Fraction(111, 100)


@pytest.mark.parametrize("value", [None, "not supported", True, float("nan"), "1/0", [1]])
def test_what_is_not_a_number_is_said_to_be_unknown_and_never_zero(value: object) -> None:
    assert number_of(value) is None
    assert quoted_upper(value) == "not supported"


@pytest.mark.parametrize("value", [math.inf, "infinite"])
def test_infinity_is_a_value_of_its_own(value: object) -> None:
    assert quoted_upper(value) == "∞"
