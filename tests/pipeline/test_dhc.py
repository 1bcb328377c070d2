"""A schema of 1.2 million cells, from records to conforming counts."""

from __future__ import annotations

import csv
import io
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import das
from das.checks import check
from das.plan import presets
from das.plan.load import load
from das.promise.product import product_of

UNITS = [f"1{county}{tract}{block:02d}" for county in range(3) for tract in range(3) for block in range(5)]
CONFIG = """
[release]
name = "dhc-demo"
[privacy]
rho = "24811/5000"
[input]
data = "generated"
microdata = ["people.csv"]
geocode = "GEOID"
[geography]
units = "blocks.csv"
column = "GEOID"
levels = [{name="state",width=1},{name="county",width=1},{name="tract_subset",width=1},{name="block",width=2}]
[schema]
preset = "dhc-2020-persons-us"
[strategy]
preset = "dhc-2020-persons-us"
[strategy.geolevels]
state = "4/10"
county = "2/10"
tract_subset = "3/10"
block = "1/10"
[[invariant]]
query = "total"
level = "state"
reason = "Seats"
"""


def people(count: int, seed: int = 1) -> list[tuple[str, ...]]:
    """Households and group quarters: relationships, ages and races that belong together, none of them impossible."""
    rng = np.random.default_rng(seed)
    labels = {a["name"]: a["labels"] for a in presets.read("dhc-2020-persons-us")["schema"]["attribute"]}
    races = labels["cenrace"]
    weights = 0.5 ** np.arange(len(races))
    share = rng.dirichlet(np.full(len(UNITS), 1.5))
    quarters = {20: (18, 70), 27: (60, 100), 33: (18, 25), 34: (18, 45), 36: (5, 80)}
    rows: list[tuple[str, ...]] = []

    def one(unit: str, who: int, age: int, sex: int, hispanic: int, race: int) -> None:
        age = int(np.clip(age, 0, 95))
        rows.append(
            (unit, labels["relgq"][who], labels["sex"][sex], str(age), labels["hispanic"][hispanic], races[race])
        )

    while len(rows) < count:
        unit = UNITS[rng.choice(len(UNITS), p=share)]
        hispanic, race = int(rng.random() < 0.2), int(rng.choice(len(races), p=weights / weights.sum()))
        if rng.random() < 0.02:
            kind = int(rng.choice(list(quarters)))
            for _ in range(rng.integers(5, 60)):
                one(unit, kind, rng.integers(*quarters[kind]), rng.integers(2), int(rng.random() < 0.2), race)
            continue
        age, sex = int(rng.integers(18, 90)), int(rng.integers(2))
        alone = rng.random() < 0.28
        one(unit, 0 if alone else 1, age, sex, hispanic, race)
        if not alone:
            if rng.random() < 0.6:
                one(unit, 2, max(18, age + rng.integers(-5, 6)), 1 - sex, hispanic, race)
            for _ in range(rng.integers(0, 4)):
                one(unit, 6, age - rng.integers(18, 40), rng.integers(2), hispanic, race)
    return rows


@pytest.mark.slow
def test_a_demographic_release_of_demo_size(tmp_path: Path) -> None:
    """58 geounits, 20,000 people, 1.9 million noisy numbers each: some 40 s of one core, and less than 1 GB."""
    rows = people(20_000)
    text = io.StringIO()
    csv.writer(text).writerows([("GEOID", "relgq", "sex", "age", "hispanic", "cenrace"), *rows])
    (tmp_path / "people.csv").write_text(text.getvalue())
    (tmp_path / "blocks.csv").write_text("\n".join(["GEOID", *UNITS, ""]))
    (tmp_path / "config.toml").write_text(CONFIG)
    plan = load(tmp_path / "config.toml")
    assert plan.settings.estimate.information == "level"
    assert check(plan)["geounits"] == {"state": 1, "county": 3, "tract_subset": 9, "block": 45}
    release = das.run(plan, out=tmp_path / "out", testing_key="dhc")
    counts = {level: release.counts(level) for level in plan.levels}
    assert counts["state"]["count"].sum() == len(rows), "published exactly"
    for level, above, width in (("county", "state", 1), ("tract_subset", "county", 2), ("block", "tract_subset", 3)):
        sums = [
            counts[place]
            .assign(unit=counts[place]["geocode"].astype(str).str[:width])
            .groupby(["unit", "cell"])["count"]
            for place in (level, above)
        ]
        pd.testing.assert_series_equal(sums[0].sum(), sums[1].sum())
    assert plan.schema.possible[counts["block"]["cell"]].all()
    how = pq.read_table(release.folder.counts / "diagnostics" / "state.parquet").to_pylist()
    assert [(row["solver"], row["gap"] <= 1e-6, row["widened"]) for row in how] == [("large", True, 0)]
    stated = release.table("state", "hispanic * sex").iloc[0].astype(int)
    true = pd.Series([f"{row[2]}_by_{row[4]}" for row in rows]).value_counts()
    assert np.abs(stated - true).max() < 150, "noise of five people, and what nonnegative counts make of it"


UNITS_CONFIG = """
[release]
name = "{name}"
with = {companions}
[privacy]
rho = "{rho}"
unit = "unit"
[input]
data = "generated"
microdata = ["{name}.csv"]
geocode = "GEOID"
dataset = "{name}"
[geography]
units = "blocks.csv"
column = "GEOID"
levels = [{{name="state",width=1}},{{name="county",width=1}},{{name="block",width=1}}]
[schema]
preset = "{preset}"
[strategy]
preset = "{preset}"
geolevels = {{ state = "1/2", county = "1/4", block = "1/4" }}
"""
TENURES = {
    "owned-with-mortgage": ("mortgage",),
    "owned-without-mortgage": ("owned",),
    "rented": ("rented", "no-payment"),
}


@pytest.mark.slow
def test_households_agree_with_the_units_that_were_released_first(tmp_path: Path) -> None:
    """Two releases, one product: 1.6 million cells of households, whose tenure is that of the units' release."""
    rng = np.random.default_rng(3)
    households, units = load("dhc-2020-units-us").schema, load("dhc-2020-tenvacgq-us").schema.attribute("tenvacgq")
    blocks = [f"1{county}{block}" for county in range(2) for block in range(4)]
    cells = rng.choice(rng.choice(np.flatnonzero(households.possible), 400), 3000)
    where = rng.choice(blocks, len(cells))
    labels = {n: np.array(households.attribute(n).labels)[code] for n, code in households.labels_of(cells).items()}
    frame = pd.DataFrame({"GEOID": where, **labels})
    frame.to_csv(tmp_path / "households.csv", index=False)
    occupied = [(code, rng.choice(TENURES[ten])) for code, ten in zip(where, frame["hhtenshort_3lev"], strict=True)]
    others = [(rng.choice(blocks), rng.choice(units.labels[4:])) for _ in range(300)]
    pd.DataFrame(occupied + others, columns=["GEOID", "tenvacgq"]).to_csv(tmp_path / "units.csv", index=False)
    (tmp_path / "blocks.csv").write_text("\n".join(["GEOID", *blocks, ""]))
    first = UNITS_CONFIG.format(name="units", companions="[]", rho="8833/10000", preset="dhc-2020-tenvacgq-us")
    exact = '[[invariant]]\nquery = "hhgq25"\nlevel = "block"\nreason = "counted by everybody"\n'
    (tmp_path / "units.toml").write_text(first + exact)
    second = UNITS_CONFIG.format(
        name="households", companions='["units.toml"]', rho="17043/2500", preset="dhc-2020-units-us"
    )
    agree = '[[published]]\nquery = "hhtenshort_3lev"\nlevel = "block"\nsource = "units"\n'
    (tmp_path / "households.toml").write_text(second + agree)
    das.run(load(tmp_path / "units.toml"), out=tmp_path / "units", testing_key="a")
    plan = load(tmp_path / "households.toml")
    product = product_of(plan)
    assert product is not None
    assert product.budget == Fraction(15401, 2000)
    found = das.run(plan, out=tmp_path / "out", testing_key="b").counts("block")
    kind = {unit: tenure for tenure, kinds in TENURES.items() for unit in kinds}
    counts = das.open(tmp_path / "units").counts("block")
    tenure = counts["tenvacgq"].astype(str).map(kind)
    wanted = counts.assign(tenure=tenure).dropna().groupby(["geocode", "tenure"], observed=True)["count"].sum()
    ours = found.groupby(["geocode", "hhtenshort_3lev"], observed=True)["count"].sum()
    assert ours.to_dict() == wanted[wanted > 0].to_dict()
