"""Areas off the spine against dictionaries, and what can be wrong with their files."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from geography import Areas, ProblemsFound, Spine, read_areas

LEAVES = ["b1", "b2", "b3", "b4"]
SPINE = Spine.from_paths(["county", "block"], [np.array(["c1", "c1", "c2", "c2"]), np.array(LEAVES)])


def read(folder, text, **options):
    path = folder / "places.csv"
    path.write_text(text)
    return read_areas(path, SPINE, **options)


@given(
    st.sets(st.tuples(st.sampled_from("PQR"), st.sampled_from(LEAVES)), min_size=1),
    st.lists(st.integers(-128, 127), min_size=12, max_size=12),
)
def test_tabulation_agrees_with_dictionaries(tmp_path_factory, pairs, numbers):
    text = "area,geocode\n" + "".join(f"{area},{leaf}\n" for area, leaf in pairs)
    areas = read(tmp_path_factory.mktemp("areas"), text)
    values = np.array(numbers, dtype=np.int8).reshape(4, 3)
    expected = [
        [sum(int(values[i, cell]) for i, leaf in enumerate(LEAVES) if (area, leaf) in pairs) for cell in range(3)]
        for area in sorted({area for area, _ in pairs})
    ]
    assert areas.codes.tolist() == sorted({area for area, _ in pairs})
    assert areas.tabulate(values).tolist() == expected
    assert areas.tabulate(values.reshape(4, 3, 1)).tolist() == [[[cell] for cell in row] for row in expected]
    assert areas.tabulate(values[:, 0]).tolist() == [row[0] for row in expected]
    assert areas.tabulate(sparse.csr_array(values)).toarray().tolist() == expected
    for area in areas.codes:
        assert areas.members(area).tolist() == [i for i, leaf in enumerate(LEAVES) if (area, leaf) in pairs]


def test_columns_names_and_leaves_in_no_area(tmp_path):
    text = "BLOCK,PLACE,LABEL\nb2,Q,Quay\nb1,P,Port\nb3,,\nb1,Q,Quay\n"
    areas = read(tmp_path, text, area="PLACE", geocode="BLOCK", name="LABEL")
    assert areas.codes.tolist() == ["P", "Q"]
    assert areas.names.tolist() == ["Port", "Quay"]
    assert areas.tabulate(np.array([1, 2, 4, 8])).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("P,b1,x\nP,b9,x", "row 3: geocode 'b9' is not a leaf of the spine"),
        ("P,b1,x\nP,c1,x", "row 3: geocode 'c1' is not a leaf of the spine"),
        ("P,b1,x\nP,b2,x\nP,b1,x", "row 4: area 'P' already has leaf 'b1' in row 2"),
        ("P,b1,x\nP,b2,y", "row 3: area 'P' has another name in row 2"),
        (",b1,x", "column 'area' is blank in every row"),
    ],
)
def test_errors_name_file_and_row(tmp_path, rows, message):
    with pytest.raises(ProblemsFound) as found:
        read(tmp_path, f"area,geocode,name\n{rows}\n", name="name")
    assert "places.csv" in str(found.value)
    assert message in str(found.value)


def test_all_problems_at_once(tmp_path):
    with pytest.raises(ProblemsFound) as found:
        read(tmp_path, "area,geocode\nP,b1\nP,b1\nP,x\nP,x\n")
    assert len(found.value.problems) == 3


def test_unknown_area_and_invalid_membership(tmp_path):
    areas = read(tmp_path, "area,geocode\nPort,b1\n")
    with pytest.raises(ProblemsFound, match="did you mean 'Port'"):
        areas.members("Prot")
    with pytest.raises(ValueError, match="zeros and ones"):
        Areas(np.array(["P"]), np.array([""]), sparse.csr_array(np.array([[2, 0]])))
    with pytest.raises(ValueError, match="leading axis of 4 leaves"):
        areas.tabulate(np.zeros(5))


def test_lost_zeros_are_said_once(tmp_path):
    """In the areas' file, or in the geography that it is read with."""
    spine = Spine.from_paths(["block"], [np.array(["0101", "0102", "1201"])])
    path = tmp_path / "areas.csv"
    path.write_text("area,geocode\nA,101\nA,102\nB,1201\n")
    with pytest.raises(ProblemsFound) as found:
        read_areas(path, spine)
    (problem,) = found.value.problems
    assert problem.where == f"{path}, row 2"
    assert problem.reason == "the geocode has lost its leading zeros, and 1 more geocodes of this file theirs"
    shortened = Spine.from_paths(["block"], [np.array(["101", "1201"])])
    path.write_text("area,geocode\nA,0101\nB,1201\nB,0777\n")
    with pytest.raises(ProblemsFound) as found:
        read_areas(path, shortened)
    said = [str(problem) for problem in found.value.problems]
    assert len(said) == 2
    assert "row 2: the geocode has leading zeros that the geography file has lost; write the geography" in said[0]
    assert "'0777' is not a leaf" in said[1]
