"""Names of places: from the file that lists the places, for every layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from geography import ProblemsFound, from_geocodes, read_crosswalk, read_text_columns
from geography.names import read_names


def written(folder: Path, text: str) -> Path:
    path = folder / "places.csv"
    path.write_text(text)
    return path


def test_a_wide_file_may_have_names_for_some_levels(tmp_path: Path) -> None:
    path = written(tmp_path, "p,p_name,d,d_name,v\nN,North,N1,Hill,N11\nN,,N2,,N21\nS,South,,,S90\n")
    spine = read_crosswalk(path, ["p", "d", "v"])
    found = read_names(path, spine, {"p": "p_name", "d": "d_name"})
    assert found["p"].tolist() == ["North", "South"]
    assert dict(zip(spine.geocodes("d").tolist(), found["d"].tolist(), strict=True)) == {
        "N1": "Hill",
        "N2": "",
        "S90": "",
    }


def test_nested_codes_are_looked_up_whole(tmp_path: Path) -> None:
    path = written(tmp_path, "p,d,name\n1,1,one one\n1,2,one two\n2,1,two one\n")
    spine = read_crosswalk(path, ["p", "d"], nested=True)
    assert read_names(path, spine, {"d": "name"}, nested=True)["d"].tolist() == ["one one", "one two", "two one"]


def test_edges_have_one_column_for_all_levels(tmp_path: Path) -> None:
    path = written(tmp_path, "geocode,parent,level,name\nN,,p,North\nN2,N,d,Two\nN1,N,d,One\n")
    spine = read_crosswalk(path, ["p", "d"], layout="edges")
    found = read_names(path, spine, {"p": "name", "d": "name"}, layout="edges")
    assert {level: names.tolist() for level, names in found.items()} == {"p": ["North"], "d": ["One", "Two"]}


def test_fixed_width_codes_are_cut(tmp_path: Path) -> None:
    path = written(tmp_path, "code,state,county\n01002,Ala,Two\n01001,Ala,One\n02001,Bee,One\n")
    spine = from_geocodes(read_text_columns(path, ["code"])["code"], [("state", 2), ("county", 3)])
    found = read_names(
        path, spine, {"state": "state", "county": "county"}, geocode="code", widths={"state": 2, "county": 5}
    )
    assert {level: names.tolist() for level, names in found.items()} == {
        "state": ["Ala", "Bee"],
        "county": ["One", "Two", "One"],
    }


def test_two_names_of_one_place_are_a_problem_with_its_row(tmp_path: Path) -> None:
    path = written(tmp_path, "p,called,d\nN,North,N1\nN,Nord,N2\n")
    spine = read_crosswalk(path, ["p", "d"])
    with pytest.raises(ProblemsFound) as found:
        read_names(path, spine, {"p": "called"})
    assert [str(problem) for problem in found.value.problems] == [
        f"{path}, row 3: p 'N' has another name above; give it one"
    ]


def test_a_name_that_a_spreadsheet_would_compute_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "p,called\nN,=1+1\n")
    spine = read_crosswalk(path, ["p"])
    with pytest.raises(ProblemsFound, match="formula"):
        read_names(path, spine, {"p": "called"})
