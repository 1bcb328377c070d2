"""A release of the starter against its people counted one by one, and the wall that evaluation keeps."""

from __future__ import annotations

import csv
import json
import math
import shutil
import stat
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import das
from das.demo.starter import write_starter
from das.errors import UsageError
from das.evaluation.evaluate import evaluate, evaluation_text
from das.plan.load import load
from das.release.manifest import verify_release
from das.runner import find_runner
from das.storage import shards
from das.storage.layout import Layout

ADULT = {"0-14": "child", "15-24": "adult", "25-64": "adult", "65+": "adult"}


@pytest.fixture(scope="module")
def input_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated")
    config = write_starter(folder / "input")
    config.write_text(config.read_text() + '\n[output]\ntables = ["total", "sex * grown", "grown * sex", "age"]\n')
    return folder


@pytest.fixture(scope="module")
def out(input_folder: Path) -> Path:
    das.run(load(input_folder / "input/config.toml"), out=input_folder / "out", testing_key="evaluated")
    return input_folder / "out"


@pytest.fixture(scope="module")
def evaluation(out: Path) -> dict:
    return evaluate(out)


SPELT = {"age_0_14": "0-14", "age_15_24": "15-24", "age_25_64": "25-64", "age_65_plus": "65+"}


def true_counts(folder: Path, level: str, query: str) -> Counter:
    """Count people by geounit and answer, without das."""
    with (folder / "places.csv").open() as file:
        above = {row["village"]: row for row in csv.DictReader(file)}
    found: Counter = Counter()
    with (folder / "people.csv").open() as file:
        for row in csv.DictReader(file):
            answer = {
                "total": "total",
                "age": row["age"],
                "sex * grown": f"{row['sex']} * {ADULT[row['age']]}",
                "detailed": f"{row['sex']} * {row['age']}",
            }[query]
            found[above[row["village"]][level], answer] += 1
    return found


def published_counts(out: Path, level: str, query: str) -> Counter:
    """Read a published table; only places that are there have a row."""
    with (out / f"release/tables/{level}-{query.replace(' * ', '_by_')}.csv").open() as file:
        return Counter(
            {
                (row["GEOID"], SPELT.get(column, column.replace("_by_", " * "))): int(count)
                for row in csv.DictReader(file)
                for column, count in row.items()
                if column != "GEOID"
            }
        )


@pytest.mark.parametrize("level", ["province", "district", "village"])
@pytest.mark.parametrize("query", ["total", "sex * grown", "age"])
def test_errors_are_those_of_the_published_tables(out, evaluation, level, query):
    shown, true = published_counts(out, level, query), true_counts(out.parent / "input", level, query)
    errors = {cell: shown[cell] - true[cell] for cell in shown}
    (row,) = [row for row in evaluation["levels"] if (row["level"], row["query"]) == (level, query)]
    some = [cell for cell in shown if true[cell] > 0]
    assert row["cells"] == len(shown)
    assert row["bias"] == pytest.approx(sum(errors.values()) / len(shown))
    assert row["mae"] == pytest.approx(sum(map(abs, errors.values())) / len(shown))
    assert row["rmse"] == pytest.approx(math.sqrt(sum(e * e for e in errors.values()) / len(shown)))
    assert row["mape"] == pytest.approx(100 * sum(abs(errors[c]) / true[c] for c in some) / len(some))
    assert row["mape_left_out"] == len(shown) - len(some)
    up, down = (sum(e * e for e in errors.values() if s * e > 0) for s in (1, -1))
    assert row["jason_b"] == (pytest.approx((up - down) / (up + down)) if up + down else None)


def test_every_level_has_every_query_that_is_measured_or_tabulated(evaluation):
    found = [(row["level"], row["query"]) for row in evaluation["levels"]]
    queries = ["total", "sex * grown", "detailed", "age"]
    assert found == [(level, query) for level in ("province", "district", "village") for query in queries]
    villages = {row["query"]: row["cells"] for row in evaluation["levels"] if row["level"] == "village"}
    assert villages == {"total": 9, "sex * grown": 36, "age": 36, "detailed": 72}


def test_the_detailed_error_is_that_of_the_counts(out, evaluation):
    shown = das.open(out).counts("village")
    true = true_counts(out.parent / "input", "village", "detailed")
    errors = Counter({(r.geocode, f"{r.sex} * {r.age}"): r.count for r in shown.itertuples(index=False)})
    errors.subtract(true)
    (row,) = [r for r in evaluation["levels"] if (r["level"], r["query"]) == ("village", "detailed")]
    assert row["tae"] == sum(map(abs, errors.values()))


def test_the_noise_is_that_of_the_measurement_file(out, evaluation):
    for row in evaluation["levels"]:
        if row["query"] == "age":
            assert row["measured_rmse"] is None
            assert row["noise_std_dev"] is None
            continue
        true = true_counts(out.parent / "input", row["level"], row["query"])
        measured = das.open(out).measurements(row["level"])
        measured = measured[measured["query"] == row["query"]]
        shown = published_counts(out, row["level"], "total")
        names = {
            "total": ["total"],
            "sex * grown": [f"{s} * {a}" for s in "fm" for a in ("child", "adult")],
            "detailed": [f"{s} * {a}" for s in "fm" for a in ADULT],
        }[row["query"]]
        noise = [
            value - true[geocode, name]
            for geocode, values in zip(measured["geocode"], measured["value"], strict=True)
            if (geocode, "total") in shown
            for name, value in zip(names, values, strict=True)
        ]
        assert row["measured_rmse"] == pytest.approx(math.sqrt(sum(n * n for n in noise) / len(noise)))
        assert row["noise_std_dev"] > 0


def test_coverage_is_that_of_the_published_estimates(out, evaluation):
    names = {
        "total": ["total"],
        "sex * grown": [f"{s} * {a}" for s in "fm" for a in ("child", "adult")],
        "detailed": [f"{s} * {a}" for s in "fm" for a in ADULT],
    }
    for row in evaluation["levels"]:
        if row["query"] == "age":
            assert "coverage" not in row  # tabulated and not measured: no estimates of it are published
            continue
        true = true_counts(out.parent / "input", row["level"], row["query"])
        estimates = das.open(out).estimates(row["level"])
        estimates = estimates[estimates["query"] == row["query"]]
        there = published_counts(out, row["level"], "total")
        hold = [
            abs(estimate - true[each.geocode, name]) <= 1.96 * deviation
            for each in estimates.itertuples()
            if (each.geocode, "total") in there
            for name, estimate, deviation in zip(names[row["query"]], each.estimate, each.std_dev, strict=True)
            if deviation > 0
        ]
        assert row["intervals"] == len(hold)
        assert row["coverage"] == (pytest.approx(sum(hold) / len(hold)) if hold else None)
    assert any(row.get("intervals") == 0 for row in evaluation["levels"])  # the invariant
    assert any(0.5 < (row.get("coverage") or 0) < 1 for row in evaluation["levels"])


def test_rows_come_with_bins_of_the_true_count_and_groups(out, evaluation):
    for row in evaluation["levels"]:
        assert sum(part["cells"] for part in row["bins"]) == row["cells"]
        assert sum(part["cells"] for part in row["groups"]) == (row["cells"] if row["query"] != "total" else 0)
    (row,) = [r for r in evaluation["levels"] if (r["level"], r["query"]) == ("village", "total")]
    true = true_counts(out.parent / "input", "village", "total")
    populations = [true[code, "total"] for code, _ in published_counts(out, "village", "total")]
    assert sum(b["cells"] for b in row["bins"]) == row["cells"] == 9
    assert {b["bin"]: b["cells"] for b in row["bins"]}["0"] == populations.count(0) == 2
    assert sum(b["tae"] for b in row["bins"]) == row["tae"]


def test_it_is_written_inside_for_the_owner_alone_and_nothing_changes_outside(out, evaluation):
    path = out / "confidential/evaluation.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_bytes()) == evaluation
    assert verify_release(Layout(out).release) == []
    table = out / "confidential/evaluation.parquet"
    assert stat.S_IMODE(table.stat().st_mode) == 0o600
    assert [p for p in out.rglob("evaluation*") if p not in (path, table)] == []


def test_parquet_holds_the_same_numbers(out, evaluation):
    rows = pq.read_table(out / "confidential/evaluation.parquet").to_pylist()
    wholes = [row for row in rows if row["part"] == "all"]
    assert [(row["level"], row["query"], row["mae"]) for row in wholes] == [
        (row["level"], row["query"], row["mae"]) for row in evaluation["levels"]
    ]
    parts = sum(len(row["bins"]) + len(row["groups"]) for row in evaluation["levels"])
    parts += sum(len(group["bins"]) for row in evaluation["levels"] for group in row["groups"])
    parts += sum(len(row["shares"]["bins"]) for row in evaluation["levels"] if row["shares"])
    assert len(rows) == len(wholes) + parts


def test_the_truth_of_another_release_is_refused(out, input_folder, tmp_path):
    """The same plan over the same places, of other people: only the commitment that the release published tells."""
    shutil.copytree(out, tmp_path / "out")
    people = (input_folder / "input/people.csv").read_text().splitlines()
    shutil.copytree(input_folder / "input", tmp_path / "input", ignore=shutil.ignore_patterns("*.sqlite*"))
    (tmp_path / "input/people.csv").write_text("\n".join(people[:-1]) + "\n")
    plan = load(tmp_path / "input/config.toml")
    find_runner().run(plan, tmp_path / "other", upto="tabulate", testing_key="evaluated")
    shutil.rmtree(tmp_path / "out/confidential/histograms")
    shutil.copytree(tmp_path / "other/confidential/histograms", tmp_path / "out/confidential/histograms")
    with pytest.raises(UsageError, match="true counts of another release") as refused:
        evaluate(tmp_path / "out")
    assert refused.value.exit_code == 2


def test_the_table_says_for_whom_it_is(evaluation):
    text = evaluation_text(evaluation)
    assert text.startswith("CONFIDENTIAL")
    sizes = sum(len(row["bins"]) for row in evaluation["levels"] if row["query"] == "total")
    told = len(evaluation["warnings"])
    assert len(text.splitlines()) == 3 + len(evaluation["levels"]) + 4 + sizes + (3 + told if told else 0)
    assert "village: 2 of 2 empty places were published with people" in text


def test_without_the_confidential_side_there_is_nothing_to_evaluate(out, tmp_path):
    shutil.copytree(out / "release", tmp_path / "release")
    with pytest.raises(UsageError, match="evaluation needs the confidential side") as refused:
        evaluate(tmp_path)
    assert refused.value.exit_code == 2


def test_an_unfinished_release_is_not_evaluated(tmp_path):
    with pytest.raises(UsageError, match="no finished release"):
        evaluate(tmp_path)


PARTS = ("bins", "groups", "shares")


@pytest.mark.slow
@pytest.mark.usefixtures("unconfined")
def test_levels_in_several_parts_are_read_as_one(input_folder, evaluation, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "NUMBERS_PER_SHARD", 20)
    das.run(load(input_folder / "input/config.toml"), out=tmp_path / "out", testing_key="evaluated")
    assert (tmp_path / "out/release/counts/village.parquet").is_dir()
    assert (tmp_path / "out/confidential/histograms/village.parquet").is_dir()
    again = evaluate(tmp_path / "out")
    for before, after in zip(evaluation["levels"], again["levels"], strict=True):
        assert [after.pop(name) for name in PARTS] == [before[name] for name in PARTS]
        assert after == pytest.approx({name: before[name] for name in after})


@pytest.mark.parametrize(("places", "shown"), [(24, False), (1000, True)])
def test_b_by_size_is_shown_where_sizes_have_windows_of_their_own(places: int, shown: bool) -> None:
    part = {
        "bin": "0",
        "cells": 8,
        "bias": 2.25,
        "mae": 2.25,
        "mape": None,
        "jason_b": -0.02,
        "p90_absolute_error": 4.6,
    }
    row = {"level": "town", "query": "total", "cells": places, "bias": 0.0, "mae": 1.0, "rmse": 1.0, "mape": None}
    text = evaluation_text({"release": "r", "levels": [row | {"bins": [part]}], "prior_effect": "Enclaves lose."})
    assert ("-0.02" in text) == shown
    assert text.endswith("Prior\n\nEnclaves lose.")
