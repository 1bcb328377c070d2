"""Crosswalk files: both layouts, every error kind with file and row."""

import gzip
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geography import ProblemsFound, read_crosswalk, read_text_columns


def write(folder, text, name="geo.csv"):
    path = folder / name
    path.write_text(text)
    return path


def problems_of(path, **options):
    with pytest.raises(ProblemsFound) as found:
        read_crosswalk(path, **options)
    return "\n".join(str(problem) for problem in found.value.problems)


def test_wide_csv_gzip_and_parquet_agree(tmp_path):
    text = "state,county,tract\n01,01001,t1\n01,01001,t2\n02,,t3\n03,03001,\n"
    plain = read_crosswalk(write(tmp_path, text))
    packed = tmp_path / "geo.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    table = pa.table(
        {
            "state": ["01", "01", "02", "03"],
            "county": ["01001", "01001", None, "03001"],
            "tract": ["t1", "t2", "t3", None],
        }
    )
    pq.write_table(table, tmp_path / "geo.parquet")
    assert plain == read_crosswalk(packed) == read_crosswalk(tmp_path / "geo.parquet")
    assert plain.geocodes("county").tolist() == ["01001", "t3", "03001"]
    assert plain.real("county").tolist() == [True, False, True]
    assert plain.leaves.tolist() == ["t1", "t2", "t3", "03001"]
    assert plain.real("tract").tolist() == [True, True, True, False]


def test_dictionary_columns_are_text(tmp_path):
    pq.write_table(pa.table({"state": pa.array(["01", "02"]).dictionary_encode()}), tmp_path / "geo.parquet")
    assert read_crosswalk(tmp_path / "geo.parquet").leaves.tolist() == ["01", "02"]


def test_edges_imply_the_order_of_their_levels(tmp_path):
    path = write(tmp_path, "level,geocode,parent\ntract,t1,c1\ncounty,c1,s1\nstate,s1,\ntract,t2,c1\n")
    spine = read_crosswalk(path)
    assert spine.levels == ("state", "county", "tract")
    assert spine == read_crosswalk(path, ["state", "county", "tract"], layout="edges")


def test_nested_codes(tmp_path):
    path = write(tmp_path, "state,county\n01,001\n02,001\n")
    assert read_crosswalk(path, nested=True).leaves.tolist() == ["01001", "02001"]
    assert "row 3: county '001' has two parents: state '02' here, state '01' in row 2" in problems_of(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("s,c,t\ns,c,t", "row 3: leaf 't' is already in row 2"),
        ("s,c,t\nz,c,u", "row 3: county 'c' has two parents: state 'z' here, state 's' in row 2"),
        ("s,c,t\ns,,t", "row 3: tract 't' has two parents: state 's' here, county 'c' in row 2"),
        ("s,c,t\ns,c,", "row 3: the branch ends at 'c', which has units below it in row 2"),
        ("s,c,t\n,,", "row 3: every level is blank"),
        ("s,c,t\n,d,u", "row 3: county 'd' has no parent"),
        ("s,c,t\ns,,c", "row 3: county 'c' and the one in row 2 differ: one skips this level"),
        ("c,,\ns,c,t", "row 3: county 'c' and the one in row 2 differ"),
        ("x,,\ns,,x", "row 3: county 'x' and the one in row 2 differ"),
        ("s,c ,t", "row 2: county 'c ' has blanks around it"),
        ("s,c", "row 2: has 2 fields where the header has 3"),
    ],
)
def test_wide_errors(tmp_path, rows, message):
    path = write(tmp_path, f"state,county,tract\n{rows}\n")
    assert f"{path}, {message}" in problems_of(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("s,,state\nc,s,county\nc,s,county", "row 4: county 'c' is already in row 3"),
        ("s,,state\nz,,state\nc,s,county\nc,z,county", "row 5: county 'c' has two parents: state 'z' here"),
        ("s,,state\ns,,county", "row 3: geocode 's' is of another level in row 2"),
        ("s,,state\nc,x,county", "row 3: parent 'x' of county 'c' is never defined; add a row for 'x'"),
        ("s,,state\nc,,county", "row 3: county 'c' has no parent; give its state"),
        ("s,,state\nt,s,tract\nc,t,county", "row 4: county 'c' lies in tract 't', whose level is not above"),
        ("s,,state\nc,s,contry", "row 3: 'contry' is not a level; did you mean 'county'?"),
        ("s,,state\n,s,county", "row 3: the geocode is blank"),
        ("s,,state\nc,c,county", "row 3: a cycle: county 'c' lies in county 'c'"),
        (
            "s,,state\nc,s,county\nd,s,county\nt,c,tract\nc2,d,tract\nd2,t,county",
            "row 7: county 'd2' lies in tract 't'",
        ),
        ("s,,state\nt,s,tract\nc,,county", "row 4: county 'c' has no parent"),
        ("s,,state\nx,s,tract\nc,s,county\nt,c,tract\nb,s,county", None),
        ("s,,state\nt,s,tract\nc,s,county\nt2,c,tract\nu,c,tract\nq,,state", None),
    ],
)
def test_edge_errors(tmp_path, rows, message):
    path = write(tmp_path, f"geocode,parent,level\n{rows}\n")
    levels = ["state", "county", "tract"]
    if message is None:
        assert read_crosswalk(path, levels).levels == tuple(levels)
    else:
        assert f"{path}, {message}" in problems_of(path, levels=levels)


def test_a_cycle_is_named_in_full_and_reported_once(tmp_path):
    path = write(tmp_path, "geocode,parent,level\ns,,state\na,b,county\nb,c,county\nc,a,county\nt,a,tract\n")
    found = problems_of(path, levels=["state", "county", "tract"])
    assert found.startswith(f"{path}, rows 3, 4, 5: a cycle: ")
    steps = found.split("a cycle: ")[1].split(";")[0].split(" lies in ")
    assert steps[0] == steps[-1]
    assert set(pairwise(steps)) == {
        ("county 'a'", "county 'b'"),
        ("county 'b'", "county 'c'"),
        ("county 'c'", "county 'a'"),
    }
    assert "\n" not in found


def test_all_problems_at_once(tmp_path):
    path = write(tmp_path, "geocode,parent,level\ns,,state\nc,x,county\na,b,county\nb,a,county\nd,,county\n,s,county\n")
    found = problems_of(path, levels=["state", "county"])
    assert [word in found for word in ("never defined", "a cycle", "no parent", "is blank")] == [True] * 4
    many = write(tmp_path, "state,county\n" + "".join(f",c{i}\n" for i in range(30)), "many.csv")
    assert f"{many}: and 10 more of this kind" in problems_of(many)


def test_an_ambiguous_order_of_levels_is_asked_for(tmp_path):
    path = write(tmp_path, "geocode,parent,level\ns,,state\nc,s,county\nt,s,tract\n")
    assert "do not imply one order of the levels 'county', 'state', 'tract'; give the levels" in problems_of(path)
    assert read_crosswalk(path, ["state", "county", "tract"]).size("tract") == 2


def test_nested_edges_are_refused(tmp_path):
    path = write(tmp_path, "geocode,parent,level\ns,,state\n")
    assert "use the wide layout" in problems_of(path, nested=True)


def test_parquet_rows_count_from_one(tmp_path):
    pq.write_table(pa.table({"state": ["s", "s"], "county": ["c", "c"]}), tmp_path / "geo.parquet")
    assert "geo.parquet, row 2: leaf 'c' is already in row 1" in problems_of(tmp_path / "geo.parquet")


def test_leading_zeros_survive_and_na_is_a_code(tmp_path):
    path = write(tmp_path, '\ufeffstate,county\n01,"007"\n02,NA\n')
    assert read_text_columns(path, ["county"])["county"].tolist() == ["007", "NA"]
    assert read_text_columns(path, ["state"])["state"].tolist() == ["01", "02"]


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.bool_()])
def test_parquet_numbers_are_refused(tmp_path, kind):
    path = tmp_path / "geo.parquet"
    pq.write_table(pa.table({"state": pa.array([1, 0], pa.int64()).cast(kind)}), path)
    with pytest.raises(ProblemsFound, match=r"geo\.parquet: column 'state' .*as text, so that leading zeros survive"):
        read_text_columns(path, ["state"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("geo.csv", b"", "is empty"),
        ("geo.csv", b"state,county\n", "has no rows"),
        ("geo.csv", b"stat,county\n1,2\n", "has no column 'state'; did you mean 'stat'?"),
        ("geo.csv", b"state|county\n1|2\n", "separates its columns by vertical bars, not by commas"),
        ("geo.csv", b"state,state\n1,2\n", "column 'state' appears twice"),
        ("geo.csv", b"state\n\xff\xfe\n", "cannot be read as UTF-8 CSV"),
        ("geo.csv", b"\xff\xfe\n1\n", "cannot be read as UTF-8 CSV"),
        (
            "geo.csv.gz",
            gzip.compress(b"state\n" + bytes(range(48, 58)) * 999, mtime=0)[:30],
            "cannot be read as UTF-8 CSV",
        ),
        ("geo.csv.gz", b"state\n1\n", "cannot be read as UTF-8 CSV"),
        ("geo.parquet", b"", "is empty"),
        ("geo.parquet", b"PAR1 and then nothing", "cannot be read as Parquet"),
        ("geo.xlsx", b"PK", "is a spreadsheet"),
    ],
)
def test_unreadable_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ProblemsFound) as found:
        read_text_columns(path, ["state"])
    assert str(found.value).startswith(str(path))
    assert message in str(found.value)


def test_truncated_and_rowless_parquet(tmp_path):
    path = tmp_path / "geo.parquet"
    pq.write_table(pa.table({"state": [str(i) for i in range(1000)]}), path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ProblemsFound, match="cannot be read as Parquet"):
        read_text_columns(path, ["state"])
    pq.write_table(pa.table({"state": pa.array([], pa.string())}), path)
    with pytest.raises(ProblemsFound, match="has no rows"):
        read_text_columns(path, ["state"])


def test_missing_files_and_folders(tmp_path):
    write(tmp_path, "state\n1\n")
    with pytest.raises(ProblemsFound, match=r"goe\.csv: does not exist; did you mean 'geo\.csv'\?"):
        read_text_columns(tmp_path / "goe.csv", ["state"])
    with pytest.raises(ProblemsFound, match="does not exist; check the path"):
        read_text_columns(tmp_path / "nowhere" / "geo.csv", ["state"])
    with pytest.raises(ProblemsFound, match="is a folder"):
        read_text_columns(tmp_path, ["state"])


def test_a_parent_without_its_zeros_is_recognised(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("geocode,parent,level\n01,,state\n0101,1,county\n0102,1,county\n0103,7,county\n")
    with pytest.raises(ProblemsFound) as found:
        read_crosswalk(path, ["state", "county"])
    said = [str(problem) for problem in found.value.problems]
    assert len(said) == 2
    assert "row 3: parent '1' is written '01' where it is defined, and 1 more rows likewise; write and read" in said[0]
    assert "parent '7' of county '0103' is never defined" in said[1]
