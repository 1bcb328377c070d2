"""Facts for which nothing can be promised are refused before anything is drawn, for every data set that has them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from das.checks import check
from das.errors import ConfigError, NothingToPromise
from das.facts.collect import facts_of
from das.facts.vacuous import refuse_vacuous_facts, refuse_vacuous_plan
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.schema.query import Query, answer_names, parse_query

PEOPLE = "geocode,sex,age\n01001,f,0-17\n01001,m,18-64\n02001,f,65+\n"
PRESENCE = {"framework": "zcdp", "rho": "1", "neighbours": "add-remove"}
ALL = {"query": "detailed", "level": "block", "reason": "all of it"}
TOTALS = {"query": "total", "level": "block", "reason": "counted"}


def answers_of(table: np.ndarray[Any, Any], plan: Plan) -> Any:
    spine = spine_of(plan)

    def answers(level: str, query: Query) -> np.ndarray[Any, Any]:
        out = np.zeros((spine.size(level), query.size), dtype=np.int64)
        ranges = spine.leaf_ranges(level)
        for unit in range(spine.size(level)):
            np.add.at(out[unit], query.index, table[ranges[unit] : ranges[unit + 1]].sum(axis=0))
        return out

    return answers


def refused(plan: Plan, table: np.ndarray[Any, Any]) -> bool:
    spine = spine_of(plan)
    try:
        refuse_vacuous_facts(plan, spine, facts_of(plan, spine, answers_of(table, plan)))
    except NothingToPromise:
        return True
    return False


def test_declarations_that_determine_everything_are_a_mistake_of_the_config(country) -> None:
    country.file("people.csv", PEOPLE)
    with pytest.raises(
        ConfigError, match=r"nothing can be promised.*Take two data sets: the one has one person"
    ) as said:
        check(country.plan(invariant=[ALL]))
    assert said.value.exit_code == 2
    assert "block 01001" in str(said.value)
    assert "detailed of each block" in str(said.value)


def test_ordinary_facts_are_not_refused(country) -> None:
    country.file("people.csv", PEOPLE)
    country.file("beds.csv", "geocode,f\n01001,1\n")
    bed = {"query": "sex", "level": "block", "sense": ">=", "source": "beds.csv"}
    for facts in ({}, {"invariant": [TOTALS]}, {"bound": [bed]}, {"invariant": [TOTALS], "bound": [bed]}):
        assert check(country.plan(**facts))["ok"]
    assert check(country.plan(privacy=PRESENCE, bound=[bed]))["ok"]


def test_that_there_is_nobody_is_nothing_to_hide(country) -> None:
    plan = country.plan(invariant=[TOTALS])
    assert not refused(plan, np.zeros((5, 6), dtype=np.int64))


def test_bounds_that_fix_everything_are_refused(country) -> None:
    """Lower and upper limits from one file leave one data set; the message has a pair and no count."""
    country.file("people.csv", PEOPLE)
    plan = country.plan()
    names = answer_names(parse_query(plan.schema, "detailed"))
    table = np.zeros((5, 6), dtype=np.int64)
    table[0, 0], table[2, 2] = 41, 7
    rows = [
        ",".join([code, *(str(int(table[k, i])) for i in range(len(names)))])
        for k, code in enumerate(spine_of(plan).geocodes("block"))
    ]
    country.file("all.csv", "\n".join(["geocode," + ",".join(names), *rows]) + "\n")
    both = [{"query": "detailed", "level": "block", "sense": sense, "source": "all.csv"} for sense in (">=", "<=")]
    pinned = country.plan(bound=both)
    assert refused(pinned, table)
    spine = spine_of(pinned)
    with pytest.raises(NothingToPromise, match="one data set alone agrees") as said:
        refuse_vacuous_facts(pinned, spine, facts_of(pinned, spine, answers_of(table, pinned)))
    assert said.value.exit_code == 4
    assert "41" not in str(said.value)
    assert not refused(country.plan(bound=both[:1]), table)
    # the presence of a record cannot be hidden where the bounds fix how many there are
    alone = country.plan(bound=both, privacy=PRESENCE)
    with pytest.raises(NothingToPromise, match="one of them contradicts the bounds"):
        refuse_vacuous_facts(alone, spine, facts_of(alone, spine, answers_of(table, alone)))


SMALL = {
    "geography": {"units": "two.csv", "levels": [{"name": "state", "width": 1}, {"name": "block", "width": 1}]},
    "schema": {"attribute": [{"name": "sex", "labels": ["f", "m"]}]},
    "strategy": {
        "geolevels": {"state": "1/2", "block": "1/2"},
        "queries": {"all": {"total": "1/2", "detailed": "1/2"}},
    },
}


@pytest.mark.parametrize("seed", range(12))
def test_the_decision_is_that_of_enumeration(country, seed: int) -> None:
    """Random limits on sexes and totals of two blocks: refused if and only if one data set of its size is left."""
    rng = np.random.default_rng(seed)
    country.file("two.csv", "geocode\n11\n12\n")
    truth = rng.integers(0, 2, (2, 2))
    truth[0, 0] += 1
    slack = (rng.random((2, 2, 2)) < 0.3).astype(np.int64)
    low, high = np.maximum(truth - slack[0], 0), truth + slack[1]
    for name, values in (("low.csv", low), ("high.csv", high)):
        country.file(name, "geocode,f,m\n" + "".join(f"1{k + 1},{a},{b}\n" for k, (a, b) in enumerate(values.tolist())))
    bound = [
        {"query": "sex", "level": "block", "sense": ">=", "source": "low.csv"},
        {"query": "sex", "level": "block", "sense": "<=", "source": "high.csv"},
    ]
    facts: dict[str, Any] = {"bound": bound}
    if seed % 2:
        facts["invariant"] = [TOTALS]
    plan = country.plan(**SMALL, **facts)
    tables = [np.array(t).reshape(2, 2) for t in product(range(4), repeat=4)]
    inside = [t for t in tables if (t >= low).all() and (t <= high).all()]
    if seed % 2:
        inside = [t for t in inside if (t.sum(axis=1) == truth.sum(axis=1)).all()]
    sizes = [int(t.sum()) for t in inside]
    assert refused(plan, truth) is (len(sizes) == len(set(sizes)))
    refuse_vacuous_plan(plan, spine_of(plan))  # the declarations alone decide nothing
    if not seed % 2:
        present = country.plan(**SMALL, bound=bound, privacy=PRESENCE)
        shrinks = any((t - s).min() >= 0 and (t - s).sum() == 1 for t in inside for s in inside)
        assert refused(present, truth) is not shrinks
