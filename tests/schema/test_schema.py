"""Schemas against the plain reading of their labels: every cell listed, every structural zero tried on it."""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.schema.schema import COLUMNS, Attribute, Partition, Schema, SchemaError, StructuralZero

SEX = Attribute("sex", ("f", "m"))
AGE = Attribute("age", ("0-17", "18-64", "65+"))
LETTERS = "abcde"


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    attributes = tuple(Attribute(f"x{i}", tuple(LETTERS[:size])) for i, size in enumerate(sizes))
    zeros = []
    for number in range(draw(st.integers(0, 3))):
        of = draw(st.sets(st.sampled_from(range(len(sizes))), min_size=1))
        chosen = {f"x{i}": tuple(draw(st.sets(st.sampled_from(attributes[i].labels), min_size=1))) for i in of}
        zeros.append(StructuralZero(f"zero {number}", chosen))
    if all(covered(cell, attributes, zeros) for cell in product(*(a.labels for a in attributes))):
        zeros = []
    return Schema(attributes, tuple(zeros))


def covered(cell: tuple[str, ...], attributes: tuple[Attribute, ...], zeros: list[StructuralZero]) -> bool:
    labels = dict(zip((a.name for a in attributes), cell, strict=True))
    return any(all(labels[name] in allowed for name, allowed in zero.labels.items()) for zero in zeros)


@settings(max_examples=50)
@given(schemas())
def test_cells_are_the_product_of_the_labels_in_row_major_order(schema: Schema) -> None:
    cells = list(product(*(range(len(a.labels)) for a in schema.attributes)))
    assert schema.size == len(cells)
    codes = {name: np.array([cell[i] for cell in cells]) for i, name in enumerate(schema.names)}
    assert schema.cells(codes).tolist() == list(range(len(cells)))
    back = schema.labels_of(np.arange(schema.size))
    assert {name: code.tolist() for name, code in back.items()} == {n: c.tolist() for n, c in codes.items()}


@settings(max_examples=50)
@given(schemas())
def test_a_cell_is_possible_where_no_structural_zero_covers_it(schema: Schema) -> None:
    cells = product(*(a.labels for a in schema.attributes))
    zeros = list(schema.structural_zeros)
    assert schema.possible.tolist() == [not covered(cell, schema.attributes, zeros) for cell in cells]


@settings(max_examples=50)
@given(st.integers(1, 6), st.data())
def test_a_recode_sends_each_label_to_the_group_that_names_it(size: int, data: st.DataObject) -> None:
    labels = tuple(f"v{i}" for i in range(size))
    group = [data.draw(st.integers(0, 2)) for _ in labels]
    groups = {f"g{g}": [v for v, h in zip(labels, group, strict=True) if h == g] for g in sorted(set(group))}
    partition = Attribute("x", labels, {"coarse": groups}).partition("coarse")
    assert partition.labels == tuple(groups)
    for position, label in enumerate(labels):
        assert label in groups[partition.labels[partition.group_of[position]]]


def test_the_attribute_itself_and_everything_are_partitions() -> None:
    assert AGE.partition("age").group_of.tolist() == [0, 1, 2]
    assert AGE.partition("age").is_identity
    assert AGE.partition("*").group_of.tolist() == [0, 0, 0]
    assert AGE.partition("*").is_everything


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ({"minor": ["0-17"], "adult": ["18-64"]}, "recode 'grown' never covers: '65+'"),
        ({"minor": ["0-17", "65+"], "adult": ["18-64", "65+"]}, "recode 'grown' covers more than once: '65+'"),
        ({"minor": ["0-17"], "adult": ["18-64", "65"]}, "recode 'grown' names what is not a label of 'age': '65'"),
        ({"minor": ["0-17"], "adult": ["18-64", "65+"], "none": []}, "recode 'grown' must cover each"),
        ({"minor * x": ["0-17"], "adult": ["18-64", "65+"]}, "'minor \\* x' of 'age' holds ' \\* '"),
    ],
    ids=["misses", "doubles", "strange", "empty group", "star"],
)
def test_a_recode_that_is_no_partition_is_refused_by_label(groups: dict[str, list[str]], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason.replace("+", r"\+")):
        Attribute("age", AGE.labels, {"grown": groups})


@pytest.mark.parametrize(
    ("labels", "groups"),
    [(("a",), ((0,), (1,))), (("a", "a"), ((0,), (1,))), (("a", "b"), ((0,), (0, 1))), (("a", "b"), ((0, 1), ()))],
    ids=["too few labels", "one label twice", "overlap", "empty group"],
)
def test_a_partition_covers_each_position_once(labels: tuple[str, ...], groups: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(SchemaError):
        Partition("p", labels, groups, size=2)


@pytest.mark.parametrize("labels", [(), ("f", "f"), ("f * m", "x")])
def test_labels_are_there_once_and_can_be_joined(labels: tuple[str, ...]) -> None:
    with pytest.raises(SchemaError):
        Attribute("sex", labels)


@pytest.mark.parametrize("name", ["total", "detailed", "sex", "*", "a/b", "../up", "two words", "a*b", "", "1st"])
def test_names_are_plain_and_each_names_one_thing(name: str) -> None:
    Schema((SEX, Attribute("other", ("x",))))
    with pytest.raises(SchemaError, match="name"):
        Schema((SEX, Attribute(name, ("x",))))
    with pytest.raises(SchemaError, match="name"):
        Schema((SEX, Attribute("other", ("x",), {name: {"x": ["x"]}})))


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_an_attribute_shares_its_column_with_nothing_else_of_a_release(name: str) -> None:
    with pytest.raises(SchemaError, match="share its column"):
        Schema((SEX, Attribute(name, ("x",))))


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({"sexx": ("f",)}, "'sexx' is not an attribute"),
        ({"sex": ("q",)}, "structural zero 'z' names 'q', which is not a label of 'sex'"),
        ({"sex": ("f", "m")}, "leave no cell"),
        ({}, "leave no cell"),
    ],
)
def test_a_structural_zero_names_cells_that_exist_and_leaves_some(
    labels: dict[str, tuple[str, ...]], reason: str
) -> None:
    with pytest.raises(SchemaError, match=reason):
        Schema((SEX, AGE), (StructuralZero("z", labels),))


def test_a_schema_needs_an_attribute() -> None:
    with pytest.raises(SchemaError, match="at least one"):
        Schema(())


def test_what_can_be_worked_out_again_does_not_travel_and_stays_read_only() -> None:
    schema = Schema((SEX, AGE), (StructuralZero("z", {"sex": ("m",), "age": ("65+",)}),))
    assert "possible" in schema.__dict__
    back = pickle.loads(pickle.dumps(schema))
    assert "possible" not in back.__dict__
    assert back == schema
    assert back.possible.tolist() == schema.possible.tolist() == [True] * 5 + [False]
    for one in (schema, back):
        with pytest.raises(ValueError, match="read-only"):
            one.possible[0] = False
