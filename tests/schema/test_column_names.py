"""Names of columns: what R and SQL take without quotes, each once."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from das.schema.column_names import NUMBERS, answer_columns, column_name, distinct, file_part, label_columns
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
labels = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


def test_labels_that_differ_by_a_sign_keep_different_names() -> None:
    assert [column_name(label, "age") for label in ("65", "65+", "<65", ">65", "<=65", ">=65", "-65", "65 %")] == [
        "age_65",
        "age_65_plus",
        "under_65",
        "over_65",
        "up_to_65",
        "at_least_65",
        "minus_65",
        "age_65_percent",
    ]


def test_reserved_words_of_sql_and_r_are_not_names() -> None:
    assert [column_name(word, "status") for word in ("order", "Select", "NA", "function", "sex")] == [
        "status_order",
        "status_Select",
        "status_NA",
        "status_function",
        "sex",
    ]


@given(st.lists(labels, min_size=1, max_size=6, unique=True), st.lists(labels, min_size=1, max_size=4, unique=True))
def test_every_column_is_plain_and_there_is_one_for_each_answer(first: list[str], second: list[str]) -> None:
    first, second = ([text.replace("*", "x") for text in each] for each in (first, second))
    if len(set(first)) < len(first) or len(set(second)) < len(second):
        return
    schema = Schema((Attribute("Größe", tuple(first)), Attribute("order", tuple(second))))
    query = parse_query(schema, "detailed")
    names = answer_columns(query)
    assert len(names) == query.size
    assert len({name.lower() for name in names} | {"geoid", "name"}) == len(names) + 2
    assert all(PLAIN.fullmatch(name) for name in names)
    assert PLAIN.fullmatch(file_part(parse_query(schema, "Größe * order")))


def test_columns_of_labels_make_way_for_columns_of_numbers() -> None:
    assert label_columns(["count", "GEOID", "low", "sex"], NUMBERS) == ["count_2", "GEOID_2", "low_2", "sex"]


def test_a_numbered_name_makes_way_too() -> None:
    assert distinct(["a", "a_2", "a"]) == ["a", "a_2", "a_3"]
