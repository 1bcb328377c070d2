"""Queries against their dense 0/1 matrices, built from the labels alone, and against every pair of neighbours."""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from das.schema.column_names import file_part
from das.schema.query import Neighbours, Query, parse_query
from das.schema.schema import Attribute, Schema, SchemaError, StructuralZero

LETTERS = "abcd"


def attribute(draw: st.DrawFn, name: str) -> Attribute:
    labels = tuple(draw(st.permutations(LETTERS))[: draw(st.integers(1, 4))])
    recodes = {}
    for number in range(draw(st.integers(0, 2))):
        group = [draw(st.integers(0, 2)) for _ in labels]
        order = draw(st.permutations(sorted(set(group))))
        recodes[f"{name}_r{number}"] = {
            f"g{g}": [v for v, h in zip(labels, group, strict=True) if h == g] for g in order
        }
    return Attribute(name, labels, recodes)


@st.composite
def schemas(draw: st.DrawFn, *, attributes: int = 3) -> Schema:
    made = tuple(attribute(draw, f"x{i}") for i in range(draw(st.integers(1, attributes))))
    zeros = ()
    big = next((a for a in made if len(a.labels) > 1), None)
    if big is not None and draw(st.booleans()):
        zeros = (StructuralZero("zero", {big.name: draw(st.sets(st.sampled_from(big.labels[1:]), min_size=1))}),)
    return Schema(made, zeros)


def names_of(draw: st.DrawFn, schema: Schema) -> str:
    kept = draw(st.permutations(schema.attributes))[: draw(st.integers(0, len(schema.attributes)))]
    tokens = [draw(st.sampled_from([a.name, *a.recodes])) for a in kept]
    return " * ".join(tokens) or "total"


@st.composite
def queries(draw: st.DrawFn, *, attributes: int = 3) -> Query:
    schema = draw(schemas(attributes=attributes))
    return parse_query(schema, draw(st.sampled_from(["total", "detailed", names_of(draw, schema)])))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Query, Query]:
    schema = draw(schemas())
    return parse_query(schema, names_of(draw, schema)), parse_query(schema, names_of(draw, schema))


def tokens_of(query: Query) -> dict[str, str]:
    """Attribute to the partition that the query's own name asks for."""
    schema = query.schema
    if query.name == "detailed":
        return {name: name for name in schema.names}
    owner = {token: a.name for a in schema.attributes for token in (a.name, *a.recodes)}
    return {owner[token]: token for token in query.name.split(" * ") if token in owner}


def matrix_of(query: Query) -> tuple[NDArray[np.int64], list[tuple[str, ...]]]:
    """Build the matrix of a query cell by cell, and the label of each of its rows."""
    tokens = tokens_of(query)
    groups = []  # per attribute: the groups in order, and the group of each label
    for a in query.schema.attributes:
        token = tokens.get(a.name)
        if token is None:
            groups.append((["everything"], dict.fromkeys(a.labels, "everything")))
        elif token == a.name:
            groups.append((list(a.labels), {label: label for label in a.labels}))
        else:
            recode = a.recodes[token]
            groups.append((list(recode), {label: g for g, members in recode.items() for label in members}))
    rows = list(product(*(order for order, _ in groups)))
    matrix = np.zeros((len(rows), query.schema.size), dtype=np.int64)
    for column, cell in enumerate(product(*(a.labels for a in query.schema.attributes))):
        matrix[rows.index(tuple(of[label] for (_, of), label in zip(groups, cell, strict=True))), column] = 1
    kept = [i for i, (order, _) in enumerate(groups) if len(order) > 1]
    return matrix, [tuple(row[i] for i in kept) for row in rows]


@settings(max_examples=50)
@given(queries(), st.data())
def test_answers_and_their_transpose_are_those_of_the_matrix(query: Query, data: st.DataObject) -> None:
    matrix, _ = matrix_of(query)
    numbers = st.integers(-(10**9), 10**9)
    x = np.array([data.draw(numbers) for _ in range(query.schema.size)])
    y = np.array([data.draw(numbers) for _ in range(query.size)])
    assert query.size == len(matrix)
    assert query.answer(x).tolist() == (matrix @ x).tolist()
    spread = np.broadcast_to(query.aligned(y), query.schema.shape).reshape(-1)
    assert spread.tolist() == (matrix.T @ y).tolist()
    assert int(query.answer(x) @ y) == int(x @ spread)


@settings(max_examples=50)
@given(queries(), st.integers(0, 3))
def test_answers_of_many_histograms_at_once(query: Query, units: int) -> None:
    matrix, _ = matrix_of(query)
    many = np.arange(units * query.schema.size * 2).reshape(2, units, query.schema.size)[:, :, ::-1]
    assert query.answer(many).tolist() == (many @ matrix.T).tolist()
    assert query.answer(many).shape == (2, units, query.size)


@settings(max_examples=50)
@given(queries())
def test_each_cell_is_covered_exactly_once(query: Query) -> None:
    matrix, _ = matrix_of(query)
    ones = query.answer(np.eye(query.schema.size, dtype=np.int64))  # row i: what a record in cell i adds
    assert ones.sum(axis=1).tolist() == [1] * query.schema.size
    assert ones.tolist() == matrix.T.tolist()
    assert query.index.tolist() == np.argmax(matrix, axis=0).tolist()
    some = np.arange(query.schema.size)[::-2]
    assert query.group_of(some).tolist() == query.index[some].tolist()
    with pytest.raises(ValueError, match="read-only"):
        query.index[0] = 0


@settings(max_examples=50)
@given(queries())
def test_labels_follow_the_order_of_the_answers(query: Query) -> None:
    assert list(query.labels()) == matrix_of(query)[1]


def test_labels_keep_the_order_of_the_schema() -> None:
    assert list(parse_query(SCHEMA, "age").labels()) == [("y",), ("m",), ("o",)]
    turned = parse_query(SCHEMA, "votingage * sex")
    assert list(turned.labels()) == [("f", "minor"), ("f", "adult"), ("m", "minor"), ("m", "adult")]
    assert list(parse_query(SCHEMA, "total").labels()) == [()]


@settings(max_examples=50)
@given(pairs())
def test_a_query_refines_another_if_its_groups_lie_inside_the_others(pair: tuple[Query, Query]) -> None:
    fine, coarse = (matrix_of(query)[0] for query in pair)
    inside = all(len({int(np.argmax(coarse[:, cell])) for cell in np.flatnonzero(row)}) <= 1 for row in fine)
    assert pair[0].refines(pair[1]) == inside


def test_refining_is_decided_both_ways() -> None:
    age = Attribute(
        "age", ("a", "b", "c"), {"old": {"no": ["a", "b"], "yes": ["c"]}, "ab": {"1": ["a"], "2": ["b", "c"]}}
    )
    schema = Schema((age, Attribute("sex", ("f", "m"))))
    detailed, old, other, total = (parse_query(schema, name) for name in ("detailed", "old", "ab", "total"))
    assert detailed.refines(old)
    assert old.refines(total)
    assert not old.refines(detailed)
    assert not old.refines(other)


def all_moves(query: Query, neighbours: Neighbours, units: int) -> list[NDArray[np.int64]]:
    """Change of the stacked answers of all units, for every pair of data sets that are neighbours.

    Each data set is one record in a possible cell of a unit, or nothing; further records cancel.
    """
    stacked = np.kron(np.eye(units, dtype=np.int64), matrix_of(query)[0])
    possible = np.flatnonzero(np.tile(query.schema.possible, units))
    there = [stacked[:, place] for place in possible]
    nothing = np.zeros(len(stacked), dtype=np.int64)
    if neighbours is Neighbours.ADD_REMOVE:
        return [after - before for one in there for before, after in ((one, nothing), (nothing, one))]
    return [after - before for before in there for after in there]


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("units", [1, 2, 3])
@settings(max_examples=40)
@given(query=queries(attributes=2))
def test_sensitivity_is_the_largest_change_over_all_neighbours(
    query: Query, neighbours: Neighbours, units: int
) -> None:
    moves = all_moves(query, neighbours, units)
    found = query.sensitivity(neighbours, units=units)
    assert found.l1 == max(int(np.abs(move).sum()) for move in moves)
    assert found.l2_squared == max(int((move**2).sum()) for move in moves)


def test_structural_zeros_can_leave_nowhere_to_move() -> None:
    zero = StructuralZero("all are f", {"sex": ("m",)})
    query = parse_query(Schema((Attribute("sex", ("f", "m")), Attribute("age", ("y", "o"))), (zero,)), "sex")
    assert query.sensitivity(Neighbours.REPLACE, units=1).l1 == 0
    assert query.sensitivity(Neighbours.REPLACE, units=2).l1 == 2


SCHEMA = Schema(
    (
        Attribute("sex", ("f", "m")),
        Attribute("age", ("y", "m", "o"), {"votingage": {"minor": ["y"], "adult": ["m", "o"]}}),
    )
)


@pytest.mark.parametrize(
    ("name", "token", "hint"),
    [
        ("sexx", "sexx", "did you mean 'sex'?"),
        ("sex * votingag", "votingag", "did you mean 'votingage'?"),
        ("totl", "totl", "did you mean 'total'?"),
        ("total * sex", "total", "there are sex, age, votingage"),
        ("zzz", "zzz", "there are sex, age, votingage, total, detailed"),
        ("sex * ", "", "there are sex, age, votingage"),
    ],
)
def test_a_query_that_means_nothing_is_refused_with_the_nearest_name(name: str, token: str, hint: str) -> None:
    with pytest.raises(SchemaError) as refused:
        parse_query(SCHEMA, name)
    assert str(refused.value) == f"query {name!r} uses {token!r}, which is not an attribute or recode; {hint}"


def test_an_attribute_is_kept_in_one_way_only() -> None:
    with pytest.raises(SchemaError, match="uses attribute 'age' twice"):
        parse_query(SCHEMA, "age * votingage")


def test_spelling_and_order_do_not_change_what_is_counted() -> None:
    plain, packed, turned = (parse_query(SCHEMA, name) for name in ("sex * age", "sex*age", "age * sex"))
    assert plain == packed
    assert file_part(plain) == file_part(packed) == "sex_by_age"
    assert turned.axes == plain.axes == {"sex": "sex", "age": "age"}
    assert turned.index.tolist() == plain.index.tolist()
    assert parse_query(SCHEMA, "votingage").axes == {"sex": "*", "age": "votingage"}


def test_what_can_be_worked_out_again_does_not_travel() -> None:
    big = Schema((Attribute("x", tuple(f"v{i}" for i in range(500))), Attribute("y", ("a", "b"))))
    query = parse_query(big, "x")
    before = len(pickle.dumps(query))
    assert len(query.index) == 1000
    text = pickle.dumps(query)
    assert len(text) == before
    back = pickle.loads(text)
    assert back == query
    assert "index" not in back.__dict__
    assert back.index.tolist() == query.index.tolist()
