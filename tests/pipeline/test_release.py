"""A release from end to end against dense arithmetic: what it promises of its counts holds, file by file."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import das
from das.demo import CENRACE, HHGQ, HISPANIC, VOTINGAGE
from das.demo.starter import write_starter
from das.errors import UsageError
from geography import Spine

if TYPE_CHECKING:
    from conftest import World


def rows_of_csv(path: Path, delimiter: str = ",") -> list[list[str]]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return list(csv.reader(lines, delimiter=delimiter))


def test_counts_are_positive_integers_listed_once(world: World) -> None:
    for level in world.plan.levels:
        table = pq.read_table(world.release / "counts" / f"{level}.parquet")
        assert str(table.schema.field("count").type) == "int64"
        found = table.to_pandas()
        assert (found["count"] > 0).all()
        assert not found.duplicated(["geocode", *world.labels]).any()
        assert set(found["geocode"]) <= set(world.units(level))
        shape = tuple(map(len, world.labels.values()))
        codes = [found[name].map(list(labels).index).to_numpy() for name, labels in world.labels.items()]
        assert (found["cell"].to_numpy() == np.ravel_multi_index(codes, shape)).all()


def test_children_sum_to_parents_in_every_cell_of_every_level(world: World) -> None:
    leaves = world.plan.levels[-1]
    order = {code: i for i, code in enumerate(world.units(leaves))}
    bottom = world.counts(leaves)
    for level in world.plan.levels[:-1]:
        summed = np.zeros_like(world.counts(level))
        for code, parent in zip(world.ancestors[leaves], world.ancestors[level], strict=True):
            summed[world.units(level).index(parent)] += bottom[order[code]]
        assert (summed == world.counts(level)).all()


def test_invariants_are_exact(world: World) -> None:
    assert world.plan.invariants
    for invariant in world.plan.invariants:
        axes = world.axes(invariant.query.name)
        released = world.answer(world.counts(invariant.level), axes)
        assert (released == world.answer(world.truth(invariant.level), axes)).all()


def test_the_rest_is_not_exact(world: World) -> None:
    """Otherwise the tests above would pass for the truth itself."""
    for level in world.plan.levels:
        assert (world.counts(level) != world.truth(level)).any()


def test_bounds_hold(town: World) -> None:
    facilities = pd.read_csv(town.plan.folder / "facilities.csv", dtype={"GEOID": str}).set_index("GEOID")
    quarters = dict(zip(town.units("block"), town.answer(town.counts("block"), {"hhgq": "hhgq"}), strict=True))
    for block, found in quarters.items():
        there = facilities.loc[block].to_numpy() if block in facilities.index else np.zeros(7, int)
        assert (found[1:] >= there).all()
        assert ((found[1:] == 0) | (there > 0)).all()
    assert facilities.to_numpy().sum() > 0


def test_structural_zeros_are_empty(town: World) -> None:
    minors_in_nursing_homes = HHGQ.index("nursing"), VOTINGAGE.index("0-17")
    for level in town.plan.levels:
        assert town.counts(level)[(slice(None), *minors_in_nursing_homes)].sum() == 0


def test_tables_are_sums_of_counts(world: World) -> None:
    queries = world.plan.settings.output.tables or ("total", "sex * grown")
    spine = pd.read_parquet(world.release / "facts" / "spine.parquet")
    for level in world.plan.levels:
        real = set(spine[(spine["level"] == level) & spine["real"]]["geocode"])
        shown = [code in real for code in world.units(level)]
        for query in queries:
            axes = world.axes(query)
            table = pd.read_parquet(world.release / "tables" / f"{level}-{query.replace(' * ', '_by_')}.parquet")
            assert list(table.columns) == ["GEOID", *world.columns(axes)]
            assert list(table["GEOID"]) == [code for code in world.units(level) if code in real]
            assert (table.iloc[:, 1:].to_numpy() == world.answer(world.counts(level), axes)[shown]).all()


def test_a_skipped_level_is_not_published_as_a_place(country: World) -> None:
    assert "S90" in country.units("district")
    table = das.open(country.out).table("district", "total")
    assert list(table.index) == ["N1", "N2", "S1"]
    release = das.open(country.out)
    assert "S90" in release.table("village", "total").index
    for read in (release.estimates, release.measurements, release.counts):
        assert set(read("district")["geocode"]) == {"N1", "N2", "S1"}
    assert "S90" in set(release.records()["GEOID"])


def test_area_tables_are_sums_over_their_leaves(town: World) -> None:
    place = {code: i for i, code in enumerate(town.units("block"))}
    for kind in ("place", "district"):
        members = pd.read_csv(town.plan.folder / f"{kind}s.csv", dtype=str).groupby("area")["geocode"]
        for query in town.plan.settings.output.tables or ():
            answers = town.answer(town.counts("block"), town.axes(query))
            table = pd.read_parquet(town.release / "tables" / f"{kind}-{query.replace(' * ', '_by_')}.parquet")
            assert list(table["GEOID"]) == sorted(members.groups)
            for row in table.itertuples(index=False):
                assert (answers[[place[code] for code in members.get_group(row[0])]].sum(axis=0) == row[1:]).all()


def test_records_tabulate_to_the_counts(world: World) -> None:
    records = pd.read_parquet(world.release / "microdata" / "records.parquet")
    if world.plan.name == "demo":
        codes = {
            "hhgq": ("GQTYPE_PL", {str(i): label for i, label in enumerate(HHGQ)}),
            "votingage": ("VOTING_AGE", {str(i): label for i, label in enumerate(VOTINGAGE, start=1)}),
            "hispanic": ("CENHISP", {str(i): label for i, label in enumerate(HISPANIC, start=1)}),
            "cenrace": ("CENRACE", {f"{i:02d}": label for i, label in enumerate(CENRACE, start=1)}),
        }
        labels = pd.DataFrame({name: records[column].map(code) for name, (column, code) in codes.items()})
        # A published block number repeats the digit of its block group.
        parts = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLK"]
        leaf = records[parts].agg("".join, axis=1)
        assert (records["TABBLK"].str[0] == records["TABBLKGRPCE"]).all()
        assert ((records["RTYPE"] == "3") == (records["GQTYPE_PL"] == "0")).all()
        assert (records.groupby(leaf)["EPNUM"].apply(lambda n: sorted(n) == list(range(1, len(n) + 1)))).all()
    else:
        labels, leaf = records, records["GEOID"]
    leaves = world.plan.levels[-1]
    assert (world.dense(leaves, leaf, labels) == world.counts(leaves)).all()


@pytest.mark.slow
def test_csv_says_the_same_as_parquet(world: World) -> None:
    found = 0
    for path in sorted(world.release.glob("[tm]*/*.parquet")):
        if path.parent.name == "measurements":
            continue
        delimiter = "|" if path.parent.name == "microdata" else ","
        table, (head, *rows) = pd.read_parquet(path), rows_of_csv(path.with_suffix(".csv"), delimiter)
        written = pd.DataFrame(rows, columns=head).astype({name: float for name in table.select_dtypes("float")})
        whole = table.select_dtypes(exclude="float").columns
        pd.testing.assert_frame_equal(written, table.astype(dict.fromkeys(whole, str)), check_dtype=False)
        found += 1
    assert found > 6


def test_every_geounit_has_every_query_with_its_noise(world: World) -> None:
    parameter = {"pure": "scale", "zcdp": "sigma2"}[world.plan.framework]
    columns = ["geocode", "query", *world.labels, "query_shape", "value", "variance", parameter]
    empty = set(world.ancestors.iloc[:, -1]) - set(world.people["leaf"])
    assert empty
    for level in world.plan.levels:
        measured = pd.read_parquet(world.release / "measurements" / f"{level}.parquet")
        assert list(measured.columns) == columns
        planned = {m.query.name: m for m in world.plan.at(level)}
        wanted = Counter((code, query) for code in world.units(level) for query in planned)
        assert Counter(zip(measured["geocode"], measured["query"], strict=True)) == wanted
        noise = []
        for query, rows in measured.groupby("query"):
            axes = world.axes(str(query))
            assert (rows[list(world.labels)] == [axes.get(name, "*") for name in world.labels]).all().all()
            sizes = [len(groups) for name, groups in world.groups(axes).items() if name in axes] or [1]
            assert {tuple(shape) for shape in rows["query_shape"]} == {tuple(sizes)}
            truth = world.answer(world.truth(level), axes)
            values = np.stack(rows.sort_values("geocode")["value"].to_list())
            assert values.shape == truth.shape
            noise.append((values - truth).reshape(-1))
            cost = planned[str(query)].cost
            # One person who moves changes two answers by one: Δ₁ = 2 and Δ₂² = 2.
            exact = 2 / cost if parameter == "scale" else 1 / cost
            assert set(rows[parameter].map(Fraction)) == {exact}
        flat = np.concatenate(noise)
        assert (flat != 0).mean() > 0.4
        assert (flat > 0).any()
        assert (flat < 0).any()


def test_the_shares_of_the_measurements_add_up_to_the_budget(world: World) -> None:
    assert sum(m.cost for m in world.plan.measurements) == world.plan.budget


def test_the_manifest_lists_every_file_with_its_hash(world: World) -> None:
    manifest = json.loads((world.release / "manifest.json").read_bytes())
    found = {
        path.relative_to(world.release).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            **({"rows": pq.read_table(path).num_rows} if path.suffix == ".parquet" else {}),
        }
        for path in world.release.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert manifest["outputs"] == found
    assert manifest["seeded"] is True
    for public in manifest["public_inputs"]:
        content = (world.plan.folder / public["name"]).read_bytes()
        assert public["sha256"] == hashlib.sha256(content).hexdigest()
    assert [each["name"] for each in manifest["inputs"]] == list(world.plan.settings.input.microdata)


def test_a_release_is_read_from_its_public_files(world: World, tmp_path: Path) -> None:
    release = das.open(world.out)
    assert release.statement["seeded"] is True
    assert release.statement["ledger_agrees"] is True
    assert release.plan.digest == world.plan.digest == release.manifest["plan_digest"]
    level = world.plan.levels[0]
    assert release.counts(level)["count"].sum() == len(world.people)
    assert set(release.measurements(level)["geocode"]) == set(world.units(level))
    assert release.table(level, "total")["total"].sum() == len(world.people)
    with pytest.raises(das.errors.UsageError, match="holds no finished release"):
        das.open(tmp_path)


def test_an_empty_branch_is_released_like_any_other(tmp_path: Path) -> None:
    """A province without people, publicly: its districts are estimated below a parent that is empty in every cell."""
    config = write_starter(tmp_path / "input")
    people = (tmp_path / "input" / "people.csv").read_text().splitlines()
    (tmp_path / "input" / "people.csv").write_text("\n".join(p for p in people if not p.startswith("S")) + "\n")
    release = das.run(das.load(config), out=tmp_path / "out", testing_key="empty branch")
    assert release.table("province", "total").loc["S", "total"] == 0
    assert release.table("village", "total")["total"].filter(like="S").sum() == 0
    assert list(release.estimates("district")["geocode"].unique()) == ["N1", "N2", "S1"]


def test_a_placeholder_of_a_skipped_level_is_no_place(country: World) -> None:
    spine = Spine.load(country.release / "facts" / "spine.parquet")
    (code,) = spine.geocodes("district")[~spine.real("district")]
    with pytest.raises(UsageError, match="is not a district of this release") as refused:
        das.open(country.out).query(area=f"district:{code}")
    assert f"'{code}'" not in str(refused.value)
