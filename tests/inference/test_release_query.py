"""Questions to a small release, against least squares by brute force from its measurement files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import das
from das.api import Release
from das.cli import das as command
from das.errors import UsageError
from das.inference.intervals.asked import ask
from das.release.manifest import verify_release
from das.schema.query import Query, parse_query

PLACES = {
    "N": {"N1": ["N11", "N12", "N13"], "N2": ["N21", "N22"]},
    "S": {"S1": ["S11", "S12", "S13"], "S2": ["S21"]},
}
SEX, AGE = ("f", "m"), ("0-14", "15-24", "25-64", "65+")
CATCHMENTS = {"HC01": ["N11", "N12", "N13", "N21"], "HC02": ["N22", "S11", "S13"]}
CONFIG = """
[release]
name = "villages"
[privacy]
framework = "zcdp"
rho = "1/2"
[input]
data = "generated"
microdata = "people.csv"
geocode = "village"
[geography]
crosswalk = "places.csv"
levels = [{{ name = "province" }}, {{ name = "district" }}, {{ name = "village" }}]
areas = [{{ name = "catchment", file = "catchments.csv" }}]
[[schema.attribute]]
name = "sex"
labels = ["f", "m"]
[[schema.attribute]]
name = "age"
labels = ["0-14", "15-24", "25-64", "65+"]
recodes.grown = {{ child = ["0-14"], adult = ["15-24", "25-64", "65+"] }}
[[schema.structural_zero]]
name = "no old men"
labels = {{ sex = "m", age = "65+" }}
[strategy.geolevels]
province = "1/4"
district = "1/4"
village = "1/2"
[strategy.queries.all]
total = "1/4"
"sex * grown" = "1/4"
detailed = "1/2"
{strategy}
[[invariant]]
query = "total"
level = "province"
reason = "Seats"
[[bound]]
query = "sex"
level = "village"
sense = "<="
source = "nobody.csv"
missing = "unlimited"
[output]
tables = ["total", "sex * age"]
{more}
"""


def released(folder: Path, strategy: str = "", more: str = "") -> Release:
    rng = np.random.default_rng(7)
    villages = [(p, d, v) for p, ds in PLACES.items() for d, vs in ds.items() for v in vs]
    rows = ["village,sex,age"]
    for *_, village in villages:
        for sex in SEX:
            for age in AGE:
                if (sex, age) != ("m", "65+") and (village, sex) != ("N13", "m"):
                    rows += [f"{village},{sex},{age}"] * int(rng.poisson(6))
    (folder / "people.csv").write_text("\n".join(rows) + "\n")
    (folder / "places.csv").write_text("province,district,village\n" + "".join(f"{','.join(v)}\n" for v in villages))
    members = "".join(f"{area},{v}\n" for area, vs in CATCHMENTS.items() for v in vs)
    (folder / "catchments.csv").write_text("area,geocode\n" + members)
    (folder / "nobody.csv").write_text("geocode,m\nN13,0\n")
    (folder / "config.toml").write_text(CONFIG.format(strategy=strategy, more=more))
    return das.run(das.load(folder / "config.toml"), out=folder / "out", testing_key="villages")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return released(tmp_path_factory.mktemp("villages"))


@pytest.fixture(scope="module")
def by_level(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Estimated from each level alone; villages measure neither ages nor the detailed query."""
    strategy = '[strategy.queries.village]\ntotal = "1/2"\nsex = "1/2"'
    return released(tmp_path_factory.mktemp("by-level"), strategy, '[estimate]\ninformation = "level"')


def leaves_of(place: str) -> dict[str, float]:
    kind, _, code = place.partition(":")
    if kind == "catchment":
        return dict.fromkeys(CATCHMENTS[code], 1.0)
    found = [v for p, ds in PLACES.items() for d, vs in ds.items() for v in vs if code in (p, d, v)]
    return dict.fromkeys(found, 1.0)


VILLAGES = [v for ds in PLACES.values() for vs in ds.values() for v in vs]


class LeastSquares:
    """Generalised least squares over all cells of all villages, from the published measurements and nothing of das."""

    def __init__(self, release: Release, *, bounded: bool = True) -> None:
        self.schema = release.plan.schema
        size = len(VILLAGES) * self.schema.size
        information, vector = np.zeros((size, size)), np.zeros(size)
        for level in ("province", "district", "village"):
            for row in release.measurements(level).itertuples():
                w = self.rows(parse_query(self.schema, row.query), leaves_of(f"{level}:{row.geocode}"))
                information += w.T @ w / row.variance
                vector += w.T @ np.array(row.value) / row.variance
        empty = np.tile(~self.schema.possible, (len(VILLAGES), 1))
        empty[VILLAGES.index("N13")] |= np.repeat([False, bounded], len(AGE))
        self.kept = np.flatnonzero(~empty.reshape(-1))
        covariance = np.linalg.pinv(information[np.ix_(self.kept, self.kept)], hermitian=True)
        mean = covariance @ vector[self.kept]
        total = parse_query(self.schema, "total")
        counts = release.counts("province").groupby("geocode")["count"].sum()
        for province in PLACES:
            one = self.rows(total, leaves_of(f"province:{province}"))[:, self.kept]
            gain = covariance @ one.T / (one @ covariance @ one.T)
            mean = mean + gain[:, 0] * (counts[province] - one @ mean)
            covariance = covariance - gain @ one @ covariance
        self.mean, self.covariance = mean, covariance

    def rows(self, query: Query, leaves: dict[str, float]) -> NDArray[np.float64]:
        answers = np.zeros((query.size, self.schema.size))
        answers[query.index, np.arange(self.schema.size)] = 1.0
        return np.kron(np.array([leaves.get(v, 0.0) for v in VILLAGES])[None, :], answers)

    def weights(self, places: dict[str, float], sex: str = "fm", ages: tuple[str, ...] = AGE) -> NDArray[np.float64]:
        cell = np.array([float(s in sex and a in ages) for s in SEX for a in AGE])
        leaf = np.zeros(len(VILLAGES))
        for place, weight in places.items():
            for village in leaves_of(place):
                leaf[VILLAGES.index(village)] += weight
        return np.kron(leaf, cell)[self.kept]

    def number(self, w: NDArray[np.float64]) -> tuple[float, float]:
        return float(w @ self.mean), float(np.sqrt(max(w @ self.covariance @ w, 0.0)))


@pytest.fixture(scope="module")
def oracle(release: Release) -> LeastSquares:
    return LeastSquares(release)


@pytest.mark.parametrize("place", ["province:N", "district:N2", "village:N13", "catchment:HC01", "catchment:HC02"])
@pytest.mark.parametrize(
    ("where", "sex", "ages"),
    [
        ({}, "fm", AGE),
        ({"sex": "f", "age": ["15-24", "25-64"]}, "f", AGE[1:3]),
        ({"age": ["0-14", "65+"]}, "fm", (AGE[0], AGE[3])),
        ({"grown": "adult", "sex": ["m"]}, "m", AGE[1:]),
    ],
)
def test_selections_of_labels_in_any_place(
    release: Release, oracle: LeastSquares, place: str, where: Any, sex: str, ages: tuple[str, ...]
) -> None:
    found = release.query(where=where, area=place).to_pandas().iloc[0]
    estimate, deviation = oracle.number(oracle.weights({place: 1.0}, sex, ages))
    assert found["estimate"] == pytest.approx(estimate, abs=2e-4)
    assert found["std_dev"] == pytest.approx(deviation, abs=1e-6)
    assert 0 <= found["low"] <= max(found["estimate"], 0) <= found["high"]


def test_all_of_a_level_are_the_places_one_by_one(release: Release) -> None:
    together = release.query("sex * grown", level="village").to_pandas()
    alone = pd.concat([release.query("sex * grown", area=f"village:{v}").to_pandas() for v in VILLAGES])
    assert list(together["place"].unique()) == [f"village:{v}" for v in VILLAGES]
    pd.testing.assert_frame_equal(together, alone.reset_index(drop=True), atol=1e-5)


def test_all_areas_of_a_kind_and_their_published_counts(release: Release) -> None:
    found = release.query("sex", level="catchment").to_pandas().set_index(["place", "sex"])
    villages = release.counts("village")
    for area, members in CATCHMENTS.items():
        inside = villages[villages["geocode"].isin(members)]
        for sex in SEX:
            assert found.loc[(f"catchment:{area}", sex), "count"] == inside.loc[inside["sex"] == sex, "count"].sum()


@pytest.mark.parametrize(
    ("ask", "places"),
    [
        ({"area": "catchment:HC01", "minus": "district:S1"}, {"catchment:HC01": 1.0, "district:S1": -1.0}),
        ({"area": "province:N", "minus": "catchment:HC01"}, {"province:N": 1.0, "catchment:HC01": -1.0}),
        (
            {"combine": [(0.5, "village:N11"), (-2.0, "district:N1"), (1.0, "catchment:HC02")]},
            {"village:N11": 0.5, "district:N1": -2.0, "catchment:HC02": 1.0},
        ),
    ],
)
def test_differences_and_weighted_sums(
    release: Release, oracle: LeastSquares, ask: Any, places: dict[str, float]
) -> None:
    found = release.query(where={"sex": "f"}, **ask).to_pandas().iloc[0]
    estimate, deviation = oracle.number(oracle.weights(places, "f"))
    assert found["estimate"] == pytest.approx(estimate, abs=2e-4)
    assert found["std_dev"] == pytest.approx(deviation, abs=1e-6)
    assert found["high"] - found["estimate"] == pytest.approx(1.959964 * deviation, abs=1e-4)


def test_ratios_in_one_place_and_between_places(release: Release, oracle: LeastSquares) -> None:
    ours = release.query(where={"sex": "f", "grown": "adult"}, area="catchment:HC02", over={"sex": "f"})
    other = release.query(where={"sex": "f"}, area="catchment:HC02", over_area="district:N1")
    cases = [
        (ours, {"catchment:HC02": 1.0}, ("f", AGE[1:]), {"catchment:HC02": 1.0}, ("f", AGE)),
        (other, {"catchment:HC02": 1.0}, ("f", AGE), {"district:N1": 1.0}, ("fm", AGE)),
    ]
    for found, above, who, below, whom in cases:
        w, v = oracle.weights(above, *who), oracle.weights(below, *whom)
        n, d = w @ oracle.mean, v @ oracle.mean
        row = found.to_pandas().iloc[0]
        assert row["estimate"] == pytest.approx(n / d, abs=1e-5)
        slope = w - n / d * v
        assert row["std_dev"] == pytest.approx(np.sqrt(slope @ oracle.covariance @ slope) / d, rel=1e-4)
        assert "Fieller" in found.interval
        for end in (row["low"], row["high"]):  # at Fieller's limits n - r d is exactly so many deviations from zero
            at_end = w - end * v
            z = abs(n - end * d) / np.sqrt(at_end @ oracle.covariance @ at_end)
            assert z == pytest.approx(1.959964, abs=1e-3) or end in (0.0, 1.0)


def test_what_is_known_exactly_has_no_interval(release: Release) -> None:
    rows = release.query(level="province").to_pandas()
    assert (rows["std_dev"] == 0).all()
    assert (rows["low"] == rows["count"]).all()
    assert (rows["estimate"] == rows["count"]).all()
    men = release.query(where={"sex": "m"}, area="village:N13").to_pandas().iloc[0]
    assert (men["estimate"], men["std_dev"], men["high"]) == (0, 0, 0)
    assert (release.query("detailed", where={"sex": "m", "age": "65+"}, level="village").to_pandas()["high"] == 0).all()


def test_confidence_widens_and_feldman_cousins_never_ends_below_zero(release: Release) -> None:
    ninety, almost = (
        release.query(area="village:N12", where={"sex": "f"}, confidence=c).to_pandas().iloc[0] for c in (0.9, 0.99)
    )
    assert almost["low"] < ninety["low"] < ninety["high"] < almost["high"]
    unified = release.query("detailed", level="village", interval="feldman-cousins").to_pandas()
    free = unified[unified["std_dev"] > 0]
    assert (free["high"] > 0).all()
    assert (free["low"] >= 0).all()


def test_tables_have_files_of_intervals_beside_them(release: Release) -> None:
    assert verify_release(release.folder) == []
    for place in ("province", "district", "village", "catchment"):
        for query in ("total", "sex * age"):
            path = release.folder.tables / f"{place}-{query.replace(' * ', '_by_')}_intervals.parquet"
            written = pq.read_table(path).to_pandas()
            asked = release.query(query, level=place).to_pandas()
            assert list(written.columns) == ["GEOID", *asked.columns[1:]]
            assert list(written["GEOID"]) == [name.partition(":")[2] for name in asked["place"]]
            for column in ("count", "estimate", "std_dev", "low", "high"):
                np.testing.assert_allclose(written[column], asked[column], atol=1e-3)
            text = pd.read_csv(path.with_suffix(".csv"), dtype={"GEOID": str})
            np.testing.assert_allclose(text["estimate"], written["estimate"])
            wide = release.table(place, query).to_numpy().reshape(-1)
            assert (wide == written["count"].to_numpy()).all()


def test_a_release_explains_its_own_areas_without_the_files_of_its_config(release: Release, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for path in release.folder.path.rglob("*"):
        if path.is_file():
            target = copy / "release" / path.relative_to(release.folder.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    row = das.open(copy).query(area="catchment:HC01").to_pandas()
    pd.testing.assert_frame_equal(row, release.query(area="catchment:HC01").to_pandas())
    downloaded = (copy / "release").rename(tmp_path / "villages-2020")
    pd.testing.assert_frame_equal(das.open(downloaded).query(area="catchment:HC01").to_pandas(), row)


def test_a_plan_of_districts_as_a_file(release: Release, oracle: LeastSquares, tmp_path: Path) -> None:
    path = tmp_path / "seats.csv"
    path.write_text("area,geocode\n" + "".join(f"{i % 3},{v}\n" for i, v in enumerate(VILLAGES)))
    found = release.query(level="seats", areas=path).to_pandas()
    assert list(found["place"]) == ["seats:0", "seats:1", "seats:2"]
    w = oracle.weights({f"village:{v}": 1.0 for v in VILLAGES[::3]})
    assert found.loc[0, ["estimate", "std_dev"]].tolist() == pytest.approx(oracle.number(w), abs=2e-4)


def test_level_releases_are_answered_from_their_measurements(by_level: Release) -> None:
    """Where leaves do not determine a block, bounds that say that nobody is there are not used."""
    oracle = LeastSquares(by_level, bounded=False)
    for place in ("district:N2", "village:N12", "catchment:HC02"):
        found = by_level.query(where={"sex": "f"}, area=place).to_pandas().iloc[0]
        estimate, deviation = oracle.number(oracle.weights({place: 1.0}, "f"))
        assert found["estimate"] == pytest.approx(estimate, abs=1e-3)
        assert found["std_dev"] == pytest.approx(deviation, abs=1e-3)


def test_what_was_not_measured_is_not_estimable_and_what_is_is_named(by_level: Release) -> None:
    found = by_level.query("age", level="village")
    assert found.to_pandas()["estimate"].isna().all()
    assert found.to_pandas()["count"].notna().all()
    assert len(found.notes) == 1
    assert "not estimable at village" in found.notes[0]
    assert "estimable there: total, sex" in found.notes[0]
    assert "not estimable" in repr(found)
    assert by_level.query("age", level="district").to_pandas()["estimate"].notna().all()
    assert not list(by_level.folder.tables.glob("*_intervals*"))


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ({"where": {"sx": "f"}}, "'sx' is not an attribute or recode.*did you mean 'sex'"),
        ({"where": {"age": "15-25"}}, "'15-25' is no label of 'age'.*'15-24' lies within it"),
        ({"query": "sexx"}, "did you mean 'sex'"),
        ({"area": "vilage:N11"}, "is not a level or a kind of area.*did you mean 'village'"),
        ({"area": "village:N111"}, "is not a village of this release.*did you mean 'N11'"),
        ({"area": "catchment:HC5"}, "is not a catchment of this release.*HC0"),
        ({"area": "N11"}, "names no kind of place.*KIND:CODE"),
        ({"area": "village"}, "names a kind of place and no code"),
        ({"confidence": 1.0}, "strictly between 0 and 1"),
        ({"interval": "wald"}, "'wald' is unknown"),
        ({"area": "village:N11", "minus": "village:N12", "interval": "feldman-cousins"}, "is for counts"),
        ({"where": {"age": "0-14", "grown": "adult"}}, "no label of 'age' fulfils every condition"),
    ],
)
def test_mistakes_are_named_with_the_nearest_that_exists(release: Release, ask: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        release.query(**ask)


@pytest.fixture
def run(release: Release) -> Callable[..., str]:
    def typed(*arguments: str) -> str:
        done = CliRunner().invoke(
            command, ["query", str(release.folder.path.parent), *arguments], catch_exceptions=False
        )
        assert done.exit_code == 0
        return done.stdout

    return typed


def test_the_command_prints_a_table_and_writes_files(run: Callable[..., str], release: Release, tmp_path: Path) -> None:
    out = run("--query", "sex", "--where", "age=15-24,25-64", "--area", "catchment:HC01", "--area", "village:N11")
    assert out.splitlines()[0].startswith("sex where age=15-24,25-64; 95 % intervals: normal, cut at zero")
    assert len(out.splitlines()) == 6
    csv, parquet = tmp_path / "a.csv", tmp_path / "a.parquet"
    asked = release.query("sex", level="district", confidence=0.9)
    said = json.loads(
        run(
            "--query",
            "sex",
            "--level",
            "district",
            "--confidence",
            "0.9",
            "--csv",
            str(csv),
            "--parquet",
            str(parquet),
            "--json",
        )
    )
    assert said["rows"] == asked.to_json()["rows"]
    assert said["confidence"] == 0.9
    assert pq.read_table(parquet).equals(asked.to_arrow())
    np.testing.assert_allclose(pd.read_csv(csv)["high"], asked.to_pandas()["high"])


def test_the_command_takes_differences_sums_and_ratios(run: Callable[..., str], release: Release) -> None:
    less = json.loads(run("--area", "village:N11", "--minus", "village:N12", "--json"))
    terms = json.loads(run("--combine", "village:N11", "--combine=-1*village:N12", "--json"))
    assert less["rows"][0]["std_dev"] == pytest.approx(terms["rows"][0]["std_dev"])
    share = json.loads(run("--where", "sex=f", "--over", "total", "--json"))
    assert 0 < share["rows"][0]["low"] < share["rows"][0]["high"] < 1


def test_a_weighted_sum_beside_a_level_has_a_row_of_its_own(release: Release) -> None:
    found = release.query(level="province", combine=[(2.0, "province:N")]).to_pandas()
    assert found["place"].tolist() == ["province:N", "province:S", "+2*province:N"]
    assert found["count"].iloc[2] == 2 * found["count"].iloc[0]


@pytest.mark.parametrize("interval", ["normal", "feldman-cousins"])
def test_an_area_of_one_village_has_the_interval_of_the_village(
    release: Release, tmp_path: Path, interval: Any
) -> None:
    (tmp_path / "mine.csv").write_text("area,geocode\n01,N12\n")
    one = release.query(area="village:N12", interval=interval).to_pandas()
    areas = tmp_path / "mine.csv"
    for found in (
        release.query(areas=areas, area="mine:01", interval=interval),
        release.query(areas=areas, interval=interval),  # the areas of the file are what is asked about
        release.query(combine=[(1.0, "village:N12")], interval=interval),
    ):
        numbers = found.to_pandas()
        for name in ("count", "estimate", "std_dev", "low", "high"):
            assert numbers[name].tolist() == one[name].tolist(), name


def test_feldman_cousins_holds_at_least_the_noise_of_one_measurement(release: Release) -> None:
    """Noise of one measurement decides a cell of a village: its own quantiles are not those of a normal error."""
    plain, other = (
        release.query("detailed", level="village", interval=each).to_pandas() for each in ("normal", "feldman-cousins")
    )
    assert (other["low"] <= plain["low"]).all()
    assert (other["high"] >= plain["high"]).all()
    assert (other["high"] > other["low"])[other["std_dev"] > 0].all()


def test_a_ratio_of_differences_is_not_cut_and_others_are_cut_at_zero(release: Release) -> None:
    terms = [(1.0, "village:N11"), (-1.0, "village:N12")]
    signed = release.query(where={"sex": "f"}, over={}, combine=terms)
    assert "not cut" in signed.interval
    assert signed.to_pandas()["low"].iloc[0] < 0 or signed.to_pandas()["high"].iloc[0] > 1
    sexes = release.query(where={"sex": "f"}, over={"sex": "m"}, level="village", confidence=0.999)
    assert "cut at 0;" in sexes.interval
    assert (sexes.to_pandas()["low"] >= 0).all()


def test_a_denominator_that_is_not_estimable_is_named(by_level: Release) -> None:
    found = by_level.query(where={"sex": "f"}, over={"age": "65+"}, level="village")
    assert found.to_pandas()["estimate"].isna().all()
    assert any("determines 'total where age=65+'" in note for note in found.notes)


def test_counts_of_an_earlier_release_are_noted_for_large_schemas_too(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("das.inference.intervals.query.LARGEST_BLOCK", 0)
    monkeypatch.setattr("das.inference.intervals.public_files.PublicFiles.notes", lambda _: ("earlier",))
    assert das.open(release.folder.path.parent).query().notes[0] == "earlier"


def test_large_schemas_name_what_is_estimable(by_level: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("das.inference.intervals.query.LARGEST_BLOCK", 0)
    found = das.open(by_level.folder.path.parent).query("age", area=["village:N11"])
    assert found.to_pandas()["estimate"].isna().all()
    assert "not estimable at village" in found.notes[-1]
    assert "estimable there: total, sex" in found.notes[-1]


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_refused(release: Release, weight: float) -> None:
    with pytest.raises(UsageError, match="weight of province:N is not a finite number"):
        release.query(combine=[(weight, "province:N")])


def test_areas_under_the_name_of_a_level_are_refused(release: Release, tmp_path: Path) -> None:
    (tmp_path / "village.csv").write_text("area,geocode\n01,N12\n")
    with pytest.raises(UsageError, match="'village' is a level of this release"):
        release.query(areas=tmp_path / "village.csv", level="village")


def test_a_confidence_near_one_is_not_shown_as_certainty(release: Release) -> None:
    assert "99.99999 % intervals" in release.query(confidence=0.9999999).text()


class TestSmallTables:
    """What is asked alone, as for schemas whose queries couple too many cells; here the limit is put to zero."""

    @pytest.fixture
    def coupled(self, release: Release, monkeypatch: pytest.MonkeyPatch) -> Release:
        monkeypatch.setattr("das.inference.intervals.query.LARGEST_BLOCK", 0)
        return das.open(release.folder.path.parent)

    @pytest.mark.parametrize("place", ["province:N", "district:N2", "village:N12", "catchment:HC02"])
    @pytest.mark.parametrize(
        ("query", "where"), [("total", {}), ("sex", {}), ("sex", {"age": ["15-24", "65+"]}), ("grown", {"sex": "f"})]
    )
    def test_estimates_are_least_squares_of_the_sums(
        self, coupled: Release, place: str, query: str, where: dict[str, Any]
    ) -> None:
        """By brute force: the measured answers are added up to what the table's cells determine."""
        schema, asked = coupled.plan.schema, ask(coupled.plan.schema, query, where)
        labels = [[tuple(column) for column in factor.T.tolist()] for factor in asked.factors]
        group = np.array([[f"{a}|{b}" for b in labels[1]] for a in labels[0]]).reshape(-1)
        names = list(dict.fromkeys(group.tolist()))
        into = np.array([[float(name == each) for each in group] for name in names])  # groups x cells
        size = len(VILLAGES) * len(names)
        information, vector = np.zeros((size, size)), np.zeros(size)
        for level in ("province", "district", "village"):
            for row in coupled.measurements(level).itertuples():
                parsed = parse_query(schema, row.query)
                answers = np.zeros((parsed.size, schema.size))
                answers[parsed.index, np.arange(schema.size)] = 1.0
                sums = _sums_of_both(answers, into)
                combined = sums @ np.array(row.value)
                noise = row.variance * sums.sum(axis=1)
                on_groups = (sums @ answers @ into.T > 0).astype(float)
                leaves = leaves_of(f"{level}:{row.geocode}")
                w = np.kron(np.array([leaves.get(v, 0.0) for v in VILLAGES])[None, :], on_groups)
                information += (w.T / noise) @ w
                vector += w.T @ (combined / noise)
        covariance = np.linalg.inv(information)
        mean = covariance @ vector
        counts = coupled.counts("province").groupby("geocode")["count"].sum()
        for province in PLACES:
            leaves = leaves_of(f"province:{province}")
            one = np.kron(np.array([leaves.get(v, 0.0) for v in VILLAGES]), np.ones(len(names)))
            gain = covariance @ one / (one @ covariance @ one)
            mean = mean + gain * (counts[province] - one @ mean)
            covariance = covariance - np.outer(gain, one @ covariance)
        found = coupled.query(query, where=where, area=[place])
        assert "sums of measured answers" in found.notes[0]
        weights = asked.of_cells(into) @ np.eye(asked.size)  # groups x answers, each cell of a group counted
        weights = (weights > 0).astype(float)
        leaves = leaves_of(place)
        for at, row in enumerate(found.table.to_pylist()):
            w = np.kron(np.array([leaves.get(v, 0.0) for v in VILLAGES]), weights[:, at])
            assert row["estimate"] == pytest.approx(float(w @ mean), abs=1e-6)
            assert row["std_dev"] == pytest.approx(float(np.sqrt(max(w @ covariance @ w, 0.0))), abs=1e-6)

    def test_shares_and_too_many_groups(self, coupled: Release, monkeypatch: pytest.MonkeyPatch) -> None:
        found = coupled.query(where={"sex": "f"}, over={}, level="district")
        assert all(0 <= row["low"] < row["estimate"] < row["high"] <= 1 for row in found.table.to_pylist())
        table = coupled.query("sex * age", level="district").table
        with monkeypatch.context() as usual:
            usual.setattr("das.inference.intervals.query.LARGEST_BLOCK", 400)
            whole = coupled.query("sex * age", level="district").table
        assert table["count"].to_pylist() == whole["count"].to_pylist()
        assert sum(table["std_dev"].to_pylist()) >= sum(whole["std_dev"].to_pylist())
        monkeypatch.setattr("das.inference.intervals.pooled.LARGEST_BLOCK", 3)
        with pytest.raises(UsageError, match="tells 8 groups of cells apart"):
            coupled.query("sex * age")


def _sums_of_both(answers: NDArray[np.float64], into: NDArray[np.float64]) -> NDArray[np.float64]:
    """The finest sums of answers that are sums of groups, too: sums x answers."""
    overlap = (answers @ into.T > 0).astype(int)
    reach = np.eye(len(answers), dtype=int)
    for _ in range(len(answers)):
        reach = ((reach @ overlap @ overlap.T) > 0).astype(int)
    return np.unique(reach, axis=0).astype(float)
