"""Whom a release hits hardest: worked by hand, and silent where nothing is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from das.evaluation.bins import by_population
from das.evaluation.hardest_hit import by_group, warnings
from das.evaluation.truth import Compared
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

SCHEMA = Schema((Attribute("sex", ("f", "m")),))
SEX, TOTAL = parse_query(SCHEMA, "sex"), parse_query(SCHEMA, "total")


def compared(published: list[list[int]], true: list[list[int]]) -> Compared:
    """Places x answers, as sparse lists of what is positive on either side."""
    shown, real = (np.asarray(side, dtype=np.float64).reshape(-1) for side in (published, true))
    key = np.flatnonzero((shown > 0) | (real > 0))
    query = SEX if len(true[0]) == 2 else TOTAL
    return Compared(level="block", query=query, cells=shown.size, key=key, published=shown[key], true=real[key])


def row(one: Compared) -> dict:
    bins = by_population(one.published, one.true, unlisted=one.unlisted)
    return {"level": one.level, "query": one.query.name, "bins": bins, "groups": by_group(one)}


def test_groups_are_summed_over_all_places() -> None:
    women, men = by_group(compared([[3, 5], [0, 7], [0, 0]], [[4, 5], [2, 5], [0, 0]]))
    assert (women["group"], women["true_total"], women["cells"], women["bias"]) == ("f", 6.0, 3, -1.0)
    assert (men["true_total"], men["bias"], men["mae"]) == (10.0, pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert women["false_zero_share"] == 0.5
    assert by_group(compared([[3]], [[4]])) == []


def test_a_loss_of_one_group_is_told_with_its_size() -> None:
    """Ten blocks, each with 2 women published as 1 and 50 men as 51: the total is right everywhere."""
    found = warnings([row(compared([[1, 51]] * 10, [[2, 50]] * 10))])
    assert "block, sex: f loses 10 of 20, 50 %" in found
    assert not [line for line in found if " m " in line]


def test_empty_places_that_are_published_with_people_come_first() -> None:
    published, true = [[4]] * 6 + [[0]] * 2 + [[97]] * 8, [[0]] * 8 + [[100]] * 8
    assert warnings([row(compared(published, true))])[0] == (
        "block: 6 of 8 empty places were published with people, 4.0 on average"
    )


def test_errors_that_cancel_or_few_cells_are_not_told() -> None:
    assert warnings([row(compared([[9], [11]] * 20, [[10]] * 40))]) == []
    assert warnings([row(compared([[20]], [[10]]))]) == []
    assert warnings([row(compared([[100]] * 5, [[100]] * 5))]) == []
