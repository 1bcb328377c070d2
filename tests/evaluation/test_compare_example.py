"""The comparison: matched privacy, conforming contenders, a page that stands alone; the benchmark's rows; the verb."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
from click.testing import CliRunner

from das.accounting.conditioning import conditioned_geometric
from das.bench.congenial import rows
from das.cli import das as command
from das.errors import ConfigError
from das.evaluation.compare.example_table import (
    compare_example,
    comparison_text,
    distances,
    matched_epsilon_lower,
    post_processed,
)
from das.evaluation.compare.page import render_comparison
from das.report.lines import Line, line_chart
from das.table.example import COUNTS, SEX_BY_AGE
from das.table.systems import agrees


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return compare_example(runs=40, steps=2_000)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
def test_the_matched_noise_costs_no_more_and_hardly_less(epsilon: Fraction) -> None:
    cell = matched_epsilon_lower(epsilon)
    assert conditioned_geometric(cell, 2, "equalities and box").cost <= epsilon
    assert conditioned_geometric(cell + Fraction(1, 10**5), 2, "equalities and box").cost > epsilon
    assert cell < epsilon / 2


def test_too_small_to_match() -> None:
    with pytest.raises(ConfigError, match="too small"):
        matched_epsilon_lower(Fraction(1, 10**8))
    with pytest.raises(ConfigError, match="float"):
        compare_example(epsilon=0.5)  # type: ignore[arg-type]


def test_distances_by_hand() -> None:
    draws = {"a": np.array([[3, 4], [0, 0]]), "b": np.array([[1.0, -1.0]])}
    a, b = distances([0, 0], draws, {"a": 2.0})
    assert (a.l1, a.l2, a.epsilon, a.runs, a.negative) == (3.5, 2.5, 2.0, 2, 0.0)
    assert (b.l1, b.epsilon, b.negative) == (2.0, None, 0.5)
    with pytest.raises(ConfigError, match="rows of tables"):
        distances([0, 0], {"c": np.array([1, 2])})


def test_post_processing_conforms() -> None:
    rng = np.random.default_rng(2)
    noisy = np.array(COUNTS) + rng.integers(-5, 6, size=(3, 46))
    assert agrees(SEX_BY_AGE, post_processed(noisy, 8.0)).all()


def test_contenders_have_the_same_privacy(found: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in found["contenders"]}
    assert [row["epsilon"] for row in rows.values()][:3] == [1.0, 1.0, 1.0]
    assert rows["congenial, same noise"]["epsilon"] == pytest.approx(1.48988, abs=1e-5)
    assert rows["raw noise"]["negative"] > 0
    assert all(row["negative"] == 0 for name, row in rows.items() if name != "raw noise")
    # 88.28 is the mean of 46 absolute draws; conditioning comes nearer at the same scale, not at the same privacy
    assert rows["raw noise"]["l1"] == pytest.approx(88.28, abs=5 * rows["raw noise"]["l1_error"])
    assert rows["congenial, same noise"]["l1"] < rows["raw noise"]["l1"] < rows["congenial, matched"]["l1"]
    assert "congenial, matched" in comparison_text(found)
    assert json.loads(json.dumps(found)) == found


def test_the_page_stands_alone(found: dict[str, Any]) -> None:
    page = render_comparison(found)
    assert "Privacy is matched" in page
    assert "loses up to 1.49" in page
    for forbidden in ("<script", "http:", "https:", "src=", "url("):
        assert forbidden not in page
    assert page.count('<svg class="chart"') == 4
    without = render_comparison({key: value for key, value in found.items() if key != "chain"})
    assert "chain on this table" not in without
    other = {**found, "contenders": found["contenders"][:3]}
    assert "dashed bar" not in render_comparison(other, title="Rhode Island", note="25,181 blocks.")


def test_a_line_is_where_its_numbers_are() -> None:
    svg = fromstring(line_chart("c", "C", [Line("one", [(0.0, 0.0), (4.0, 10.0)])], across="x", up="y"))
    steps = [list(map(float, s.split())) for s in next(svg.iter("path")).attrib["d"].removeprefix("M").split("L")]
    assert steps == [[0.0, 1000.0], [1000.0, 0.0]]
    assert "one: 0 to 10" in (svg.findtext("desc") or "")


def test_the_verb_writes_a_page_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any]
) -> None:
    asked = {}
    monkeypatch.setattr(
        "das.evaluation.compare.example_table.compare_example", lambda **given: asked.update(given) or found
    )
    out = tmp_path / "comparison.html"
    done = CliRunner().invoke(command, ["compare", "--out", str(out), "--epsilon", "1/2", "--runs", "9", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == found
    assert asked == {"epsilon": "1/2", "runs": 9}
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "raw noise" in CliRunner().invoke(command, ["compare"]).stdout


@pytest.mark.slow
def test_rows_of_the_benchmark() -> None:
    measured = rows(repetitions=1, draws=20_000, steps=20_000, single_steps=200)
    assert len(measured) == 3
    for row in measured:
        assert {"name", "ours", "peer", "ratio", "unit", "checked", "table"} <= row.keys()
        assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
        assert row["checked"].startswith("same distribution")
    assert measured[2]["acceptance"] == pytest.approx(6.6209718e-4, rel=1e-6)  # Z c^43
