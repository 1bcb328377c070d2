"""People for any config: exact margins, zeros, bounds, ragged hierarchies, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import das
from das.checks import check
from das.demo.anywhere import populate
from das.demo.margins import Margin, read_margins
from das.demo.starter import write_starter
from das.errors import InfeasibleError, InputError
from das.evaluation.country import answers_of, generate_country, with_generated
from das.plan.geography import spine_of
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema, StructuralZero
from geography import Spine

HEADER = "level,geocode,query,answer,count\n"


def test_margins_of_several_levels_and_queries_are_met_exactly(country: Any) -> None:
    table = country.file(
        "margins.csv",
        HEADER
        + "state,0,total,total,900\ncounty,01,total,,500\nstate,1,total,total,70\n"
        + "state,0,sex,f,600\nstate,0,sex,m,300\nstate,0,grown,minor,250\nstate,0,grown,adult,650\n"
        + "county,02,sex * grown,f * minor,41\nblock,11001,age,65+,3\n",
    )
    plan = country.plan()
    spine = spine_of(plan)
    cells = populate(plan.schema, spine, 7, margins=read_margins(table, plan.schema, spine))
    answer = {
        (level, name): answers_of(spine, cells, level, parse_query(plan.schema, name))
        for level, name in [("state", "total"), ("county", "total"), ("state", "sex"), ("state", "grown")]
    }
    assert answer["state", "total"].tolist() == [[900], [70]]
    assert answer["county", "total"][0].tolist() == [500]
    assert answer["state", "sex"][0].tolist() == [600, 300]
    assert answer["state", "grown"][0].tolist() == [250, 650]
    assert answers_of(spine, cells, "county", parse_query(plan.schema, "sex * grown"))[1][0] == 41
    assert answers_of(spine, cells, "block", parse_query(plan.schema, "age"))[4][2] == 3
    assert (cells >= 0).all()
    assert not cells[:, ~plan.schema.possible].any()


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 60), min_size=3, max_size=3), st.integers(0, 100))
def test_any_totals_and_any_marginal_are_met(seed: int, towns: list[int], women: int) -> None:
    schema = Schema(
        (Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))),
        (StructuralZero("no old men", {"sex": ("m",), "age": ("old",)}),),
    )
    spine = Spine.from_paths(["state", "town"], [np.array(["1"] * 3), np.array(["11", "12", "13"])])
    total, sex = parse_query(schema, "total"), parse_query(schema, "sex")
    people = sum(towns)
    split = np.array([[min(women, people), people - min(women, people)]])
    margins = [
        Margin(level="town", query=total, units=np.arange(3), counts=np.array(towns)[:, None]),
        Margin(level="state", query=sex, units=np.array([0]), counts=split),
    ]
    cells = populate(schema, spine, seed, margins=margins)
    assert cells.sum(axis=1).tolist() == towns
    assert sex.answer(cells.sum(axis=0)).tolist() == split[0].tolist()
    assert not cells[:, ~schema.possible].any()
    assert np.array_equal(cells, populate(schema, spine, seed, margins=margins))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("contry,01,total,total,5\n", "did you mean 'county'"),
        ("county,99,total,total,5\n", "'99' is not a county"),
        ("county,01,sx,f,5\n", "did you mean 'sex'"),
        ("county,01,sex,x,5\n", "'x' is not an answer"),
        ("county,01,sex,f,-5\n", "not a whole number"),
        ("county,01,sex,f,5\ncounty,01,sex,f,6\n", "row 3.*an earlier row"),
        ("county,01,sex,f,5\ncounty,01,sex,m,5\ncounty,01,total,total,11\n", "do not add up"),
    ],
)
def test_a_row_that_does_not_fit_is_named(country: Any, rows: str, words: str) -> None:
    plan = country.plan()
    with pytest.raises(InputError, match=words):
        read_margins(country.file("margins.csv", HEADER + rows), plan.schema, spine_of(plan))


def test_margins_that_contradict_each_other_are_named(country: Any) -> None:
    rows = "state,1,total,total,5\nblock,11001,total,total,9\n"
    plan = country.plan()
    with pytest.raises(InfeasibleError, match="margin of 'total' at state 1"):
        generate_country(plan, 1, None, country.file("margins.csv", HEADER + rows))


def test_ragged_branches_get_people_and_the_plan_reads_them(country: Any, tmp_path: Path) -> None:
    country.file("geo.csv", "state,county,block\nA,A1,A11\nA,A1,A12\nA,,A90\nB,B1,B11\n")
    levels = [{"name": "state"}, {"name": "county"}, {"name": "block"}]
    plan = country.plan(
        geography={"crosswalk": "geo.csv", "levels": levels},
        input={"microdata": "nowhere.csv"},
        invariant=[{"query": "total", "level": "state", "reason": "law"}],
    )
    made = generate_country(plan, 5)
    reading = with_generated(plan, made, tmp_path / "people.parquet")
    assert reading.settings.input.data == "generated"
    assert reading.digest == plan.digest
    check(reading)  # every row is found on the spine and in the schema
    written = pq.read_table(tmp_path / "people.parquet")
    assert sum(written["count"].to_pylist()) == made.cells.sum() == 160
    assert set(written["geocode"].to_pylist()) == set(made.spine.leaves[made.cells.any(axis=1)].tolist())
    (tmp_path / "people.parquet").unlink()
    with pytest.raises(InputError):
        check(reading)


def test_margins_hold_beside_bounds_or_it_is_said_which_do_not(tmp_path: Path) -> None:
    config = write_starter(tmp_path / "country")
    folder = config.parent
    most = dict.fromkeys(("N11", "N12", "N21", "N22", "S11", "S12", "S13", "S90"), 200) | {"N13": 0}
    (folder / "most.csv").write_text("geocode,total\n" + "".join(f"{code},{n}\n" for code, n in most.items()))
    bound = '\n[[bound]]\nquery = "total"\nlevel = "village"\nsense = "<="\nsource = "most.csv"\nreason = "known"\n'
    config.write_text(config.read_text() + bound)
    plan = das.load(config)
    margins = folder / "margins.csv"
    margins.write_text("level,geocode,query,answer,count\nprovince,N,total,total,120\ndistrict,S1,total,total,70\n")
    for seed in range(5):
        country = generate_country(plan, seed, margins=margins)
        totals = {
            level: dict(zip(country.spine.geocodes(level).tolist(), country.answers(level, total)[:, 0], strict=True))
            for level, total in ((level, parse_query(plan.schema, "total")) for level in plan.levels)
        }
        assert (totals["province"]["N"], totals["district"]["S1"], totals["village"]["N13"]) == (120, 70, 0)
    margins.write_text("level,geocode,query,answer,count\nvillage,N13,total,total,5\n")
    with pytest.raises(InfeasibleError, match="margin of 'total' at village N13: does not go with the bounds"):
        generate_country(plan, 1, margins=margins)
