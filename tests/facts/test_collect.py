"""Public facts: carried up the spine against plain sums, and contradictions against every histogram there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from das.errors import InfeasibleError, InputError
from das.facts import conflict as contradiction
from das.facts.collect import facts_of, require_agreement
from das.facts.fact import Declared, Fact, limits_of
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.schema.limits import NO_LIMIT
from das.schema.query import Query, answer_names, parse_query
from das.schema.schema import Attribute, Schema, StructuralZero
from geography import Spine, from_geocodes

Country = Any
BLOCKS = ("01001", "01002", "02001", "02003", "11001")
COUNTIES = ("01", "02", "11")
STATES = ("0", "1")
NEVER = int(NO_LIMIT)
SECRET = 73819264
each_time = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


def bound(query: str, level: str, sense: str, source: str, **more: Any) -> dict[str, Any]:
    return {"query": query, "level": level, "sense": sense, "source": source, "reason": "beds", **more}


def invariant(query: str, level: str) -> dict[str, str]:
    return {"query": query, "level": level, "reason": "seats"}


def facts_by_name(
    plan: Plan, truth: dict[str, NDArray[np.int64]] | None = None
) -> dict[tuple[str, str, str], list[list[int]]]:
    """All facts by (level, query, sign)."""
    answers = None if truth is None else (lambda level, query: truth[level, query.name])
    facts = facts_of(plan, spine_of(plan), answers)
    assert tuple(facts) == ("state", "county", "block")
    return {(level, f.query.name, f.sign): f.values.tolist() for level, at in facts.items() for f in at}


def refused(plan: Plan, truth: dict[Any, NDArray[np.int64]] | None = None) -> list[str]:
    with pytest.raises(InputError) as error:
        facts_by_name(plan, truth)
    assert error.value.exit_code == 3
    return [str(problem) for problem in error.value.problems]


def summed(values: dict[str, list[int]], units: tuple[str, ...]) -> list[list[int]]:
    """Sums over the blocks whose geocode begins with each unit's."""
    return [
        [
            min(sum(column), NEVER)
            for column in zip(*(v for code, v in values.items() if code.startswith(u)), strict=True)
        ]
        for u in units
    ]


# -- up the spine ------------------------------------------------------------------------------------------------------

numbers = st.lists(st.integers(0, 10**6), min_size=2, max_size=2)


@each_time
@given(
    rows=st.dictionaries(st.sampled_from(BLOCKS), numbers, min_size=1),
    sense=st.sampled_from(["<=", ">="]),
    factor=st.integers(1, 99),
    columns=st.sampled_from([("f", "m"), ("m", "f"), ("m",)]),
)
def test_a_bound_is_added_up_to_every_level_above(
    country: Country, rows: dict[str, list[int]], sense: str, factor: int, columns: tuple[str, ...]
) -> None:
    """A geounit without a row has zeros, if that is said; an answer without a column is not bounded."""
    lines = [",".join(("id", *columns, "other"))]
    lines += [",".join((code, *(str(dict(f=v[0], m=v[1])[c]) for c in columns), "x")) for code, v in rows.items()]
    country.file("beds.csv", "\n".join(lines) + "\n")
    plan = country.plan(bound=[bound("sex", "block", sense, "beds.csv", geocode="id", factor=factor, missing="zero")])
    nothing = NEVER if sense == "<=" else 0
    values = {}
    for code in BLOCKS:
        f, m = rows.get(code, [0, 0])
        values[code] = [f * factor if "f" in columns else nothing, m * factor]
    assert facts_by_name(plan) == {
        ("block", "sex", sense): list(values.values()),
        ("county", "sex", sense): summed(values, COUNTIES),
        ("state", "sex", sense): summed(values, STATES),
    }


@each_time
@given(
    low=st.lists(st.integers(0, 9), min_size=5, max_size=5),
    high=st.lists(st.integers(30, 60), min_size=3, max_size=3),
    also=st.lists(st.integers(0, 30), min_size=3, max_size=3),
)
def test_of_two_bounds_the_tighter_one_stands(
    country: Country, low: list[int], high: list[int], also: list[int]
) -> None:
    country.file("low.csv", "geocode,total\n" + "".join(f"{c},{n}\n" for c, n in zip(BLOCKS, low, strict=True)))
    country.file("high.csv", "geocode,total\n" + "".join(f"{c},{n}\n" for c, n in zip(COUNTIES, high, strict=True)))
    country.file("also.csv", "geocode,total\n" + "".join(f"{c},{n}\n" for c, n in zip(COUNTIES, also, strict=True)))
    plan = country.plan(
        bound=[
            bound("total", "block", ">=", "low.csv"),
            bound("total", "county", "<=", "high.csv"),
            bound("total", "county", ">=", "also.csv"),
        ]
    )
    floor = [low[0] + low[1], low[2] + low[3], low[4]]
    tight = [max(one, two) for one, two in zip(floor, also, strict=True)]
    assert facts_by_name(plan) == {
        ("block", "total", ">="): [[n] for n in low],
        ("county", "total", ">="): [[n] for n in tight],
        ("county", "total", "<="): [[n] for n in high],
        ("state", "total", ">="): [[tight[0] + tight[1]], [tight[2]]],
        ("state", "total", "<="): [[high[0] + high[1]], [high[2]]],
    }


def test_an_invariant_is_exact_at_its_level_and_above_and_implies_nothing_below(country: Country) -> None:
    plan = country.plan(invariant=[invariant("total", "county"), invariant("sex", "state")])
    truth = {("county", "total"): np.array([[5], [0], [7]]), ("state", "sex"): np.array([[2, 3], [7, 0]])}
    assert facts_by_name(plan, truth) == {
        ("county", "total", "="): [[5], [0], [7]],
        ("state", "total", "="): [[5], [7]],
        ("state", "sex", "="): [[2, 3], [7, 0]],
    }
    assert facts_by_name(plan, None) == {}, "without records nothing is known"


def test_numbers_of_a_parquet_file_may_be_numbers(country: Country) -> None:
    table = pa.table({"geocode": ["01001", "11001"], "f": [1, 2], "m": pa.array(["3", "4"])})
    country.file("beds.parquet", table)
    plan = country.plan(bound=[bound("sex", "block", ">=", "beds.parquet")])
    assert facts_by_name(plan)["block", "sex", ">="] == [[1, 3], [0, 0], [0, 0], [0, 0], [2, 4]]


def test_answers_are_named_by_the_labels_they_keep(country: Country) -> None:
    schema = country.plan().schema
    assert answer_names(parse_query(schema, "sex * grown")) == ["f * minor", "f * adult", "m * minor", "m * adult"]
    assert answer_names(parse_query(schema, "total")) == ["total"]
    country.file("beds.csv", "geocode,m * adult\n01001,4\n")
    plan = country.plan(bound=[bound("sex * grown", "block", ">=", "beds.csv")])
    assert facts_by_name(plan)["block", "sex * grown", ">="][0] == [0, 0, 0, 4]


# -- limits ------------------------------------------------------------------------------------------------------------

SCHEMA = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("y", "o"))))
SPINE = from_geocodes(["01", "02", "03"], [("all", 1), ("unit", 1)])
SIGNS = ("=", ">=", "<=")
some_facts = st.lists(
    st.tuples(
        st.sampled_from(["total", "sex"]), st.sampled_from(SIGNS), st.lists(st.integers(0, 9), min_size=6, max_size=6)
    ),
    max_size=5,
)


@settings(max_examples=50)
@given(some_facts, st.integers(0, 3), st.integers(0, 3))
def test_limits_hold_every_fact_and_nothing_else(declared: list[tuple[str, Any, list[int]]], a: int, b: int) -> None:
    units = slice(min(a, b), max(a, b))
    facts = []
    for name, sign, values in declared:
        query = parse_query(SCHEMA, name)
        facts.append(Fact(query, sign, np.array(values[: 3 * query.size]).reshape(3, query.size)))
    for limit in limits_of(tuple(facts), units):
        mine = [fact for fact in facts if fact.query.name == limit.query.name]
        for value in range(11):
            for unit in range(units.start, units.stop):
                for answer in range(limit.query.size):
                    allowed = all(holds(fact.sign, value, int(fact.values[unit, answer])) for fact in mine)
                    at = (unit - units.start, answer)
                    assert (limit.lower[at] <= value <= limit.upper[at]) == allowed
    assert {limit.query.name for limit in limits_of(tuple(facts), units)} == {name for name, _, _ in declared}


def holds(sign: str, value: int, known: int) -> bool:
    return {"=": value == known, ">=": value >= known, "<=": value <= known}[sign]


# -- contradictions ----------------------------------------------------------------------------------------------------


def histograms(schema: Schema, most: int) -> Iterator[NDArray[np.int64]]:
    for cells in product(*(range(most + 1) if possible else (0,) for possible in schema.possible)):
        yield np.array(cells)


def can_hold(facts: tuple[Fact, ...], schema: Schema, unit: int, most: int) -> bool:
    """Whether any histogram obeys all facts of one geounit: all of them are tried."""
    return any(
        all(
            holds(fact.sign, value, known)
            for fact in facts
            for value, known in zip(fact.query.answer(h).tolist(), fact.values[unit].tolist(), strict=True)
        )
        for h in histograms(schema, most)
    )


@st.composite
def facts_on(draw: st.DrawFn, schema: Schema, names: tuple[str, ...], most: int) -> tuple[Fact, ...]:
    found = []
    for name in names:
        query = parse_query(schema, name)
        for sign in draw(st.sets(st.sampled_from(SIGNS), min_size=1)):
            values = draw(st.lists(st.integers(0, most), min_size=query.size, max_size=query.size))
            found.append(Fact(query, sign, np.array([values])))
    return tuple(found)


ONE = from_geocodes(["01"], [("unit", 2)])


def agree(facts: tuple[Fact, ...], spine: Spine = ONE) -> list[str]:
    """What is said of facts declared at the one level there is."""
    try:
        require_agreement(tuple(Declared("unit", fact, f"{fact.query.name}.csv") for fact in facts), spine)
    except InfeasibleError as error:
        return [str(problem) for problem in error.problems]
    return []


@settings(max_examples=60)
@given(st.data())
def test_queries_contradict_each_other_exactly_if_no_histogram_obeys(data: st.DataObject) -> None:
    zero = StructuralZero("none", {"sex": ("m",), "age": ("o",)})
    schema = data.draw(st.sampled_from([SCHEMA, Schema(SCHEMA.attributes, (zero,))]))
    names = data.draw(st.sampled_from([("sex", "total"), ("total", "detailed"), ("age",), ("detailed", "sex", "age")]))
    facts = data.draw(facts_on(schema, names, 2))
    assert bool(agree(facts)) == (not can_hold(facts, schema, 0, 4))


@settings(max_examples=40)
@given(st.data())
def test_of_the_facts_that_are_named_each_is_needed(data: st.DataObject) -> None:
    """Facts one by one: those that are named cannot hold together, and without any of them the others can."""
    schema = Schema(SCHEMA.attributes, (StructuralZero("none", {"sex": ("m",), "age": ("o",)}),))
    facts = data.draw(facts_on(schema, ("total", "sex", "detailed"), 2))
    named = [line for line in agree(facts) if line.startswith("unit 01, query")]
    single = {}
    for fact in facts:
        for answer, name in enumerate(answer_names(fact.query)):
            alone = np.full((1, fact.query.size), -1)
            alone[0, answer] = fact.values[0, answer]
            word = {"=": "must be ", ">=": "must be at least ", "<=": "must be at most "}[fact.sign]
            start = f"unit 01, query {fact.query.name!r}, answer {name!r}: {word}{fact.values[0, answer]} "
            single[start] = Fact(fact.query, fact.sign, alone)
    used = [next(fact for start, fact in single.items() if line.startswith(start)) for line in named]
    assert len({id(fact) for fact in used}) == len(used)

    def together(some: list[Fact]) -> bool:
        return any(
            all(
                known < 0 or holds(fact.sign, value, known)
                for fact in some
                for value, known in zip(fact.query.answer(h).tolist(), fact.values[0].tolist(), strict=True)
            )
            for h in histograms(schema, 4)
        )

    assert not named or not together(used)
    for at in range(len(used)):
        assert together(used[:at] + used[at + 1 :])


def fact(query: Query, sign: Any, *values: list[int]) -> Fact:
    return Fact(query, sign, np.array(values))


def spelled(schema: Schema, *facts: tuple[str, Any, list[list[int]]]) -> list[str]:
    return agree(tuple(fact(parse_query(schema, name), sign, *values) for name, sign, values in facts), SPINE)


def test_each_contradiction_is_named_where_it_is() -> None:
    mend = "; mend or drop any one of these"
    low, high = [[1, 1], [5, 1], [0, 0]], [[1, 1], [4, 9], [0, 0]]
    other = f"; this cannot hold with the other named here{mend}"
    assert spelled(SCHEMA, ("sex", ">=", low), ("sex", "<=", high)) == [
        f"unit 02, query 'sex', answer 'f': must be at least 5 (sex.csv){other}",
        f"unit 02, query 'sex', answer 'f': must be at most 4 (sex.csv){other}",
    ]
    others = f"; this cannot hold with the 2 others named here{mend}"
    assert spelled(SCHEMA, ("sex", ">=", low), ("total", "=", [[2], [5], [0]])) == [
        f"unit 02, query 'sex', answer 'f': must be at least 5 (sex.csv){others}",
        f"unit 02, query 'sex', answer 'm': must be at least 1 (sex.csv){others}",
        f"unit 02, query 'total', answer 'total': must be 5 (total.csv){others}",
    ]
    zero = Schema(SCHEMA.attributes, (StructuralZero("no men", {"sex": ("m",)}),))
    assert spelled(zero, ("sex", ">=", [[0, 0], [3, 0], [1, 2]])) == [
        f"unit 03, query 'sex', answer 'm': must be at least 2 (sex.csv); this cannot hold at all{mend}",
        "structural zeros 'no men': leave no cell that could serve the facts named here",
    ]
    assert spelled(SCHEMA, ("sex", ">=", low), ("sex", "<=", low), ("total", "=", [[2], [6], [0]])) == []


def more_beds_than_people(country: Country) -> list[str]:
    """What is said of a county that may have seven people, and of its blocks that must have eight."""
    country.file("beds.csv", "geocode,f,m\n01001,5,2\n01002,1,0\n02001,4,4\n")
    country.file("most.csv", "geocode,total\n01,7\n02,8\n11,0\n")
    plan = country.plan(bound=[bound("sex", "block", ">=", "beds.csv"), bound("total", "county", "<=", "most.csv")])
    with pytest.raises(InfeasibleError) as error:
        facts_of(plan, spine_of(plan), None)
    return [str(problem).split("; ")[0] for problem in error.value.problems]


def test_contradictions_between_levels_name_what_was_declared(country: Country) -> None:
    assert more_beds_than_people(country) == [
        "block 01001, query 'sex', answer 'f': must be at least 5 (beds.csv)",
        "block 01001, query 'sex', answer 'm': must be at least 2 (beds.csv)",
        "block 01002, query 'sex', answer 'f': must be at least 1 (beds.csv)",
        "county 01, query 'total', answer 'total': must be at most 7 (most.csv)",
    ]


def test_where_too_much_is_declared_below_the_sums_are_named(country: Country, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contradiction, "_MOST_NUMBERS", 3)
    assert more_beds_than_people(country) == [
        "county 01, query 'sex', answer 'f': must be at least 6 (with sums of what is declared below)",
        "county 01, query 'sex', answer 'm': must be at least 2 (with sums of what is declared below)",
        "county 01, query 'total', answer 'total': must be at most 7 (with sums of what is declared below)",
    ]


def test_an_exact_value_is_named_without_it() -> None:
    total, sex = parse_query(SCHEMA, "total"), parse_query(SCHEMA, "sex")
    declared = (
        Declared("unit", Fact(total, "=", np.array([[SECRET]])), "invariant: seats", shown=False),
        Declared("unit", Fact(sex, "<=", np.array([[1, 1]])), "beds.csv"),
    )
    with pytest.raises(InfeasibleError) as error:
        require_agreement(declared, ONE)
    assert "unit 01, query 'total', answer 'total': must be as counted (invariant: seats); " in str(error.value)
    assert str(SECRET) not in str(error.value)


def test_exact_values_of_two_sources_that_disagree_are_named() -> None:
    total = parse_query(SCHEMA, "total")
    declared = tuple(Declared("unit", Fact(total, "=", np.array([[n]])), f"{n}.csv") for n in (3, 4))
    with pytest.raises(InfeasibleError, match=r"must be 3 \(3.csv\)[^\n]*\n[^\n]*must be 4 \(4.csv\)"):
        require_agreement(declared, ONE)


def test_what_cannot_be_guaranteed_is_refused_once_the_records_are_known_unless_that_is_accepted(
    country: Country,
) -> None:
    country.file("sex.csv", "geocode,f,m\n" + "".join(f"{code},2,2\n" for code in BLOCKS))
    country.file("age.csv", "geocode,minor,adult\n" + "".join(f"{code},2,2\n" for code in BLOCKS))
    crossing = [bound("sex", "block", "<=", "sex.csv"), bound("grown", "block", "<=", "age.csv")]
    truth = {(level, name): np.ones((5, 2), np.int64) for level in ("block",) for name in ("sex", "grown")}
    plan = country.plan(bound=crossing)
    facts_by_name(plan)
    with pytest.raises(InfeasibleError, match="the limits on 'sex' and 'grown' do not nest") as error:
        facts_by_name(plan, truth)
    assert error.value.exit_code == 4
    facts_by_name(country.plan(bound=crossing, estimate={"split": "attempted"}), truth)


# -- data that disobey, files that do not fit --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sense", "truth"), [(">=", [[4, 2]] + [[SECRET, 9]] * 4), ("<=", [[SECRET, 2]] + [[0, 0]] * 4)]
)
def test_data_that_disobey_a_bound_are_named_without_a_count_or_a_place(
    country: Country, sense: str, truth: list[list[int]]
) -> None:
    country.file("beds.csv", "geocode,f,m\n" + "".join(f"{code},5,2\n" for code in BLOCKS))
    plan = country.plan(bound=[bound("sex", "block", sense, "beds.csv")])
    found = refused(plan, {("block", "sex"): np.array(truth)})
    assert found == [
        f"query 'sex' at level 'block': the data do not obey the declared bound {sense} beds.csv; "
        "mend the source of the bound, or declare fewer facts; where they differ, only the records themselves say"
    ]


BAD: dict[str, tuple[str, list[str]]] = {
    "unknown geocode": ("geocode,f\n01001,1\n09009,1\n", ["beds.csv, row 3: '09009' is not a block of the spine"]),
    "geocode of another level": ("geocode,f\n01,1\n", ["beds.csv, row 2: '01' is not a block of the spine"]),
    "lost zeros": (
        "geocode,f\n1001,1\n1002,1\n",
        ["beds.csv, row 2: the geocode has lost its leading zeros, and 1 more geocodes of this file theirs"],
    ),
    "geocode twice": (
        "geocode,f\n01001,1\n01002,1\n01001,2\n",
        ["beds.csv, row 4: '01001' has an earlier row; keep one"],
    ),
    "negative": ("geocode,f,m\n01001,-1,1\n", ["beds.csv, row 2: 'f' is not a whole number"]),
    "fractional": ("geocode,f,m\n01001,1,1.5\n", ["beds.csv, row 2: 'm' is not a whole number"]),
    "blank": ("geocode,f,m\n01001,1,1\n01002,,1\n", ["beds.csv, row 3: 'f' is not a whole number"]),
    "superscript": ("geocode,f,m\n01001,²,1\n", ["beds.csv, row 2: 'f' is not a whole number"]),
    "endless": ("geocode,f,m\n01001,1234567890123,1\n", ["beds.csv, row 2: 'f' is not a whole number"]),
    "no such answer": (
        "geocode,female,male\n01001,1,1\n",
        ["beds.csv: has no column named for an answer of 'sex'"],
    ),
    "no geocode": ("geo,f,m\n01001,1,1\n", ["{folder}/beds.csv: has no column 'geocode'; did you mean 'geo'?"]),
    "ragged": ("geocode,f,m\n01001,1\n", ["{folder}/beds.csv, row 2: has 2 fields where the header has 3"]),
    "empty": ("", ["{folder}/beds.csv: is empty"]),
    "several": (
        "geocode,f,m\n09009,x,1\n01001,y,1\n01001,1,1\n",
        [
            "beds.csv, row 2: '09009' is not a block of the spine",
            "beds.csv, row 4: '01001' has an earlier row",
            "beds.csv, row 2: 'f' is not a whole number",
            "beds.csv, row 3: 'f' is not a whole number",
        ],
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bound_file_that_does_not_fit_is_named_with_its_row(country: Country, kind: str) -> None:
    content, expected = BAD[kind]
    country.file("beds.csv", content)
    truth = {("block", "sex"): np.full((5, 2), SECRET)}
    found = refused(country.plan(bound=[bound("sex", "block", "<=", "beds.csv", missing="zero")]), truth)
    assert len(found) == len(expected)
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start.format(folder=country.folder))


def test_all_bound_files_are_looked_at(country: Country) -> None:
    country.file("beds.csv", "geocode,f\n01001,x\n")
    plan = country.plan(
        bound=[
            bound("sex", "block", "<=", "bads.csv"),
            bound("sex", "block", ">=", "beds.csv"),
            bound("sex", "county", ">=", "none.csv"),
        ]
    )
    found = refused(plan)
    assert len(found) == 3
    assert found[0].endswith("bads.csv: does not exist; did you mean 'beds.csv'?")
    assert found[1] == "beds.csv, row 2: 'f' is not a whole number"
    assert "none.csv: does not exist" in found[2]


def test_an_upper_bound_needs_a_row_for_each_geounit_unless_it_says_what_a_missing_one_means(country: Country) -> None:
    country.file("beds.csv", "geocode,f,m\n01001,1,1\n02001,0,0\n11001,2,2\n")
    assert refused(country.plan(bound=[bound("sex", "block", "<=", "beds.csv")])) == [
        f"beds.csv: has no row for block {code}, so its upper bound on 'sex' is unknown; "
        'add the row, or say `missing = "zero"` or `missing = "unlimited"` in the bound'
        for code in ("01002", "02003")
    ]
    for missing, value in (("zero", 0), ("unlimited", NEVER)):
        plan = country.plan(bound=[bound("sex", "block", "<=", "beds.csv", missing=missing)])
        assert facts_by_name(plan)["block", "sex", "<="] == [[1, 1], [value] * 2, [0, 0], [value] * 2, [2, 2]]
    plan = country.plan(bound=[bound("sex", "block", ">=", "beds.csv")])
    assert facts_by_name(plan)["block", "sex", ">="] == [[1, 1], [0, 0], [0, 0], [0, 0], [2, 2]], "zero claims nothing"
