"""Ranges of labels, as a demographer writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import UsageError
from das.inference.intervals.asked import ask
from das.inference.intervals.label_ranges import chosen_labels
from das.schema.schema import Attribute, Partition, Schema

FIVES = tuple(f"{i}-{i + 4}" for i in range(0, 85, 5))


def partition(*labels: str) -> Partition:
    return Attribute("age", labels).partition("age")


def test_a_range_stands_for_the_labels_that_fill_it() -> None:
    ages = partition(*FIVES, "85+")
    assert [ages.labels[at] for at in chosen_labels(ages, ["15-49"])] == list(FIVES[3:10])
    assert chosen_labels(ages, ["80+"]) == [16, 17]
    assert chosen_labels(ages, ["under 10", "5-14"]) == [0, 1, 2], "no label twice"


def test_a_label_comes_before_a_range_and_a_question_takes_both() -> None:
    schema = Schema((Attribute("age", (*FIVES, "85+")),))
    assert ask(schema, where={"age": "15-49"}).factors[0].sum() == 7
    assert ask(schema, where={"age": ["15-19"]}).factors[0].sum() == 1


def test_a_range_that_cuts_a_label_is_explained() -> None:
    with pytest.raises(UsageError) as found:
        chosen_labels(partition("0-14", "15-24", "25-64", "65+"), ["15-49"])
    assert str(found.value) == (
        "--where: '15-49' is no label of 'age', and its labels do not fill it; '15-24' lies within it; "
        "'25-64' lies across its end; give labels: age=15-24"
    )


@pytest.mark.parametrize("labels", [("0-9", "20-29"), ("0-15", "10-29"), ("0-9", "10-29", "5")])
def test_gaps_and_overlaps_are_no_answer(labels: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="do not fill it"):
        chosen_labels(partition(*labels), ["0-29", "x"])


def test_a_misspelt_word_is_still_compared_with_labels() -> None:
    with pytest.raises(UsageError, match="did you mean 'female'"):
        chosen_labels(partition("female", "male"), ["femal"])


@given(st.lists(st.integers(1, 9), min_size=2, max_size=8), st.data())
def test_every_run_of_labels_is_found_and_nothing_else(widths: list[int], data: st.DataObject) -> None:
    ends = [sum(widths[: i + 1]) for i in range(len(widths))]
    starts = [0, *ends[:-1]]
    ages = partition(*(f"{a}-{b - 1}" for a, b in zip(starts, ends, strict=True)))
    first = data.draw(st.integers(0, ends[-1] - 1))
    last = data.draw(st.integers(first, ends[-1] - 1))
    if first in starts and last + 1 in ends:
        assert chosen_labels(ages, [f"{first}-{last}"]) == list(range(starts.index(first), ends.index(last + 1) + 1))
    else:
        with pytest.raises(UsageError):
            chosen_labels(ages, [f"{first}-{last}"])
