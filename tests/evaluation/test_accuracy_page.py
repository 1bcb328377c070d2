"""The page of a release: written inside, beside another release, with areas and a map, and refused where it must be."""

from __future__ import annotations

import json
import shutil
import stat
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import das
from das import cli
from das.demo.layout import made_up_shapes
from das.demo.starter import write_starter
from das.errors import InputError, UsageError
from das.evaluation.geometries import join_shapes, read_shapes
from das.evaluation.page import evaluate_and_report
from das.plan.load import load

AREAS = "area,geocode\nvalley,N11\nvalley,N13\nvalley,S11\ncoast,S11\ncoast,S90\n"
SQUARE = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases of the starter with an area file: without a prior, and with the sharing prior."""
    home = tmp_path_factory.mktemp("page")
    config = write_starter(home / "input")
    (home / "input/regions.csv").write_text(AREAS)
    text = config.read_text().replace(
        "[geography] ", '[geography]\nareas = [{ name = "region", file = "regions.csv" }]\n#'
    )
    config.write_text(text + '\n[output]\ntables = ["total"]\n')
    das.run(load(config), out=home / "none", testing_key="page")
    other = config.with_name("sharing.toml")
    other.write_text(
        text.replace('"example"', '"sharing"') + '\n[output]\ntables = ["total"]\n[estimate]\nprior = "sharing"\n'
    )
    das.run(load(other), out=home / "sharing", testing_key="page")
    return home


@pytest.fixture(scope="module")
def found(folder: Path) -> dict:
    return evaluate_and_report([folder / "none", folder / "sharing"])


def test_the_page_is_private_and_shows_both_releases_and_a_map(folder: Path, found: dict) -> None:
    page = folder / "none/confidential/accuracy.html"
    assert found["page"] == str(page)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text(encoding="utf-8")
    for words in (
        "Side by side",
        "American Indian counts of 5",
        "sharing (sharing)",
        "On the map",
        "made up",
        "Health of the solver",
        "region",
    ):
        assert words in text
    assert "<script" not in text
    assert list((folder / "none/release").rglob("accuracy*")) == []


def test_areas_are_added_up_from_their_villages(folder: Path, found: dict) -> None:
    truth: Counter = Counter()
    for line in (folder / "input/people.csv").read_text().splitlines()[1:]:
        truth[line.split(",")[0]] += 1
    shown = Counter(das.open(folder / "none").table("village", "total")["total"].to_dict())
    members = {"coast": ("S11", "S90"), "valley": ("N11", "N13", "S11")}
    errors = [sum(shown[v] - truth[v] for v in villages) for villages in members.values()]
    (row,) = [r for r in found["levels"] if (r["level"], r["query"]) == ("region", "total")]
    assert (row["cells"], row["on_spine"]) == (2, False)
    assert row["mae"] == pytest.approx(sum(map(abs, errors)) / 2)
    assert row["bias"] == pytest.approx(sum(errors) / 2)
    (places,) = [p for p in found["places"] if p["level"] == "region"]
    assert places["ranking"]["places"] == 2


@pytest.mark.slow
def test_other_data_are_not_shown_beside(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "input", tmp_path / "input", ignore=shutil.ignore_patterns("*.sqlite*"))
    people = tmp_path / "input/people.csv"
    people.write_text("\n".join(people.read_text().splitlines()[:-1]) + "\n")
    das.run(load(tmp_path / "input/config.toml"), out=tmp_path / "other", testing_key="page")
    with pytest.raises(UsageError, match="not a release of the same data"):
        evaluate_and_report([folder / "none", tmp_path / "other"])


def test_only_data_that_need_no_protection_are_published(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    tmp_path.chmod(0o755)
    ran = CliRunner().invoke(cli.das, ["evaluate", str(folder / "none"), "--html", str(page), "--publishable"])
    assert ran.exit_code == 0, ran.output
    assert stat.S_IMODE(page.stat().st_mode) == 0o644
    assert f"Page: {page}" in ran.output
    shutil.copytree(folder / "none", tmp_path / "copy")
    config = tmp_path / "copy/release/config.toml"
    config.write_text(config.read_text().replace('"generated"', '"confidential"'))
    with pytest.raises(UsageError, match="functions of confidential counts"):
        evaluate_and_report([tmp_path / "copy"], html=tmp_path / "no.html", publishable=True)
    assert not (tmp_path / "no.html").exists()
    evaluate_and_report([tmp_path / "copy"])
    text = (tmp_path / "copy/confidential/accuracy.html").read_text(encoding="utf-8")
    assert 'role="alert"><strong>Confidential' in text
    assert "On the map" not in text  # real places have no made-up outlines


def geojson(path: Path, codes: list[str]) -> Path:
    features = [
        {"type": "Feature", "properties": {"GEOID": c}, "geometry": {"type": "Polygon", "coordinates": [SQUARE]}}
        for c in codes
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def well_known(*, order: str = "<", height: bool = False) -> bytes:
    """A multipolygon of one square."""
    mark = struct.pack("B", order == "<")
    points = b"".join(struct.pack(f"{order}{2 + height}d", *point, *([7.0] if height else [])) for point in SQUARE)
    kind = 1000 * height
    polygon = mark + struct.pack(f"{order}III", kind + 3, 1, len(SQUARE)) + points
    return mark + struct.pack(f"{order}II", kind + 6, 1) + polygon


def test_geometries_that_do_not_join_are_counted_and_named(folder: Path, tmp_path: Path) -> None:
    path = geojson(tmp_path / "villages.geojson", ["N11", "N12", "X1", "X2"])
    found = evaluate_and_report([folder / "none"], html=tmp_path / "page.html", geometries=path)
    assert found["map"].startswith("2 geometries are of no village of this release (X1, X2); 7 of its places have no")
    assert "have no geometry (" in found["map"]
    assert (tmp_path / "page.html").read_text().count('class="land ') == 2
    with pytest.raises(UsageError, match=r"none of its 1 geometries \(X1\) is of a place"):
        join_shapes(read_shapes(geojson(tmp_path / "a.geojson", ["X1"])), {"village": ["N11"]}, "a.geojson")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("height", [False, True])
def test_both_formats_give_the_same_outlines(tmp_path: Path, order: str, height: bool) -> None:
    table = pa.table({"GEOID": ["N11"], "geometry": [well_known(order=order, height=height)]})
    pq.write_table(table, tmp_path / "villages.parquet")
    (ring,) = read_shapes(tmp_path / "villages.parquet")["N11"]
    (same,) = read_shapes(geojson(tmp_path / "villages.geojson", ["N11"]))["N11"]
    assert ring.tolist() == same.tolist() == SQUARE


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"features": [{"properties": {}, "geometry": {"type": "Polygon", "coordinates": []}}]}', "has no GEOID"),
        (
            '{"features": [{"id": "1", "geometry": {"type": "Point", "coordinates": [0, 0]}}]}',
            "Point is not an outline",
        ),
        ("{}", "GeoJSON"),
        ("not json", "GeoJSON"),
    ],
)
def test_a_file_that_is_not_outlines_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "a.geojson"
    path.write_text(content)
    with pytest.raises(InputError, match=reason):
        read_shapes(path)
    with pytest.raises(InputError, match="two geometries"):
        read_shapes(geojson(path, ["N11", "N11"]))


def area_of(rings: list[np.ndarray]) -> float:
    """By the shoelace formula; rings of one unit that touch in a corner do not overlap."""
    return sum(abs(np.sum(r[:, 0] * np.roll(r[:, 1], -1) - np.roll(r[:, 0], -1) * r[:, 1])) / 2 for r in rings)


@pytest.mark.parametrize("leaves", [5, 60, 700])
def test_made_up_units_are_the_union_of_their_leaves(leaves: int) -> None:
    single = made_up_shapes(np.arange(leaves), leaves)
    assert all(len(rings) == 1 for rings in single)  # a Voronoi cell is one piece
    units = np.arange(leaves) * 3 // leaves
    merged = made_up_shapes(units, 3)
    whole = made_up_shapes(np.zeros(leaves, np.int64), 1)
    for unit, rings in enumerate(merged):
        members = [single[leaf] for leaf in np.flatnonzero(units == unit)]
        assert sum(map(area_of, members)) >= area_of(rings) * (1 - 1e-9) > 0
    assert sum(map(area_of, single)) == pytest.approx(sum(map(area_of, merged)), rel=0.02)
    assert area_of(whole[0]) == pytest.approx(sum(map(area_of, single)), rel=0.1)
    again = made_up_shapes(units, 3)
    assert all(
        np.array_equal(a, b) for one, two in zip(merged, again, strict=True) for a, b in zip(one, two, strict=True)
    )
