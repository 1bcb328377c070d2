"""Fixed-width geocodes: what is wrong with them is said with file and row, all at once."""

import numpy as np
import pytest

from geography import ProblemsFound, from_geocodes

LEVELS = [("state", 2), ("county", 3)]


def problems_of(codes, rows=None):
    with pytest.raises(ProblemsFound) as found:
        from_geocodes(codes, LEVELS, source="geo.csv", rows=rows)
    return [str(problem) for problem in found.value.problems]


def test_prefixes_become_units():
    spine = from_geocodes(["02001", "01003", "01001"], LEVELS)
    assert spine.geocodes("state").tolist() == ["01", "02"]
    assert spine.leaves.tolist() == ["01001", "01003", "02001"]
    assert spine.real("state").all()


@pytest.mark.parametrize("codes", [["1001", "10001", "10003"], ["6001", "6003"], ["6001", "6003", "9001", "10001"]])
def test_a_lost_leading_zero_is_recognised(codes):
    found = problems_of(codes)
    assert len(found) == sum(len(code) == 4 for code in codes)
    assert found[0].startswith("geo.csv, row 1: geocode ")
    assert "has lost its leading zero" in found[0]
    assert "as text" in found[0]


def test_a_short_code_among_wrong_ones_is_just_wrong():
    found = problems_of(["1001", "100", "1000001"])
    assert all("the levels' widths add up to 5" in line for line in found)
    assert "lost" not in problems_of(["A001", "01001", "01003"])[0]


def test_everything_is_reported_at_once_with_rows():
    rows = np.array([2, 3, 5, 7, 11, 13])
    found = "\n".join(problems_of(["01001", 1003, None, "01-05", "01001", "0100001"], rows))
    assert "row 3: the geocode is not text; write and read" in found
    assert "row 5: the geocode is blank" in found
    assert "row 7: geocode '01-05' has characters other than letters and digits" in found
    assert "row 11: geocode '01001' is already in row 2" in found
    assert "row 13: geocode '0100001' has 7 characters" in found


def test_letters_of_other_alphabets_are_refused():
    assert "letters and digits" in problems_of(["01001", "0100١", "01003"])[0]


def test_numbers_are_refused_as_a_whole():
    assert problems_of(np.array([1001, 1003])) == [
        "geo.csv: geocodes are numbers, which have lost leading zeros; "
        "write and read the geocode column as text, so that leading zeros survive"
    ]


def test_a_long_list_is_cut():
    found = problems_of(["01001"] * 51)
    assert len(found) == 21
    assert found[-1] == "geo.csv: and 30 more of this kind"


def test_nothing_to_build_from():
    assert "has no geocodes" in problems_of([])[0]
    with pytest.raises(ProblemsFound, match="width 1 or more"):
        from_geocodes(["01"], [("state", 2), ("county", 0)])
