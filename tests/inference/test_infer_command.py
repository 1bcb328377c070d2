"""`das infer` on files: a problem in TOML, a CSV of measurements, and a release's own measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from das import cli
from das.errors import ConfigError, InputError, ProblemsFound, UsageError
from das.inference.input_file import read_problem
from das.inference.measured_answers import measured_columns, measured_statistic
from das.inference.regression.fit import regress_release
from das.inference.regression.measured_counts import CountNoise, fit_measured_counts
from das.inference.regression.moments import corrected_fit
from das.noise.discrete_gaussian import DiscreteGaussian
from das.release.measurements import table_of_measurements

PROBLEM = """
[released]
value = 37.4
mechanism = "laplace"
scale = "5"
[model]
name = "poisson-gamma"
shape = 25
rate = 1
"""


def das(*arguments: str | Path) -> Any:
    """Run a command and give its JSON."""
    done = CliRunner().invoke(cli.das, [*map(str, arguments), "--json"])
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.toml"
    path.write_text(PROBLEM)
    return path


def test_abc_and_enumeration(problem: Path, tmp_path: Path) -> None:
    found = das("infer", "abc", problem, "--draws", "4000", "--out", tmp_path / "draws.parquet")
    assert found["theta"]["mean"] == pytest.approx(28.576, abs=0.3)
    assert found["acceptance"] == pytest.approx(0.1616, abs=0.01)
    assert found["complete"]
    assert pq.read_table(tmp_path / "draws.parquet").num_rows == 4000
    listed = das("infer", "abc", problem, "--draws", "4000", "--enumerate")
    assert listed["theta"]["mean"] == pytest.approx(28.576, abs=0.3)
    assert listed["acceptance"] == 1.0


def test_mcem(problem: Path) -> None:
    found = das("infer", "mcem", problem)
    assert found["estimate"] == pytest.approx(37.2373, abs=0.02)
    assert found["exact"]["estimate"] == pytest.approx(37.2373, abs=1e-4)
    assert found["exact"]["information"] == pytest.approx(1.58206e-2, abs=1e-6)


def test_text_for_people(problem: Path) -> None:
    done = CliRunner().invoke(cli.das, ["infer", "mcem", str(problem)])
    assert "estimate" in done.stdout
    assert "37.2" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"laplace"', '"staircase"', "no density"),
        ("value = 37.4", "", "released.value: is missing"),
        ("value = 37.4", 'value = 37.4\nprovenance = "rounded"', "was rounded after the noise"),
        ("value = 37.4", 'value = 37.4\nprovenance = "table"', "published table"),
        ('"poisson-gamma"', '"poisson"', "not a built-in model"),
        ("[model]", "[modell]", "is missing"),
        ("rate = 1", "rate = 1\ncolour = 2", "model.colour: is not known"),
        ("value = 37.4", "value = ", "is not valid TOML"),
        ('scale = "5"', 'scale = "five"', "not a number"),
        ('"laplace"', '"discrete-laplace"', "fraction"),
    ],
)
def test_a_bad_problem_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "problem.toml"
    path.write_text(PROBLEM.replace(old, new))
    with pytest.raises(ProblemsFound, match=words) as caught:
        read_problem(path)
    assert isinstance(caught.value, ConfigError | UsageError | InputError)


@pytest.fixture
def release(country, tmp_path: Path) -> tuple[Path, Any, np.ndarray]:
    """A folder with the files of a release that inference reads: config, manifest and one level's measurements."""
    queries = {"all": {"total": "1/4", "sex * grown": "5/8", "detailed": "1/8"}}
    plan = country.plan(strategy=country.config()["strategy"] | {"queries": queries})
    folder = tmp_path / "out"
    (folder / "release" / "measurements").mkdir(parents=True)
    (folder / "release" / "config.toml").write_text((tmp_path / "config.toml").read_text())
    (folder / "release" / "manifest.json").write_text("{}")
    (tmp_path / "out" / "release" / "units.csv").write_text((tmp_path / "units.csv").read_text())
    rng = np.random.default_rng(1)
    geocodes = np.array([f"0{k:04d}" for k in range(60)])
    values = rng.poisson(20, (60, 1 + 4 + 6)).astype(np.int64)
    pq.write_table(
        table_of_measurements(plan, "block", geocodes, values), folder / "release" / "measurements" / "block.parquet"
    )
    return folder, plan, values


class TestRelease:
    def test_columns_are_sums_of_answers_with_the_covariance_of_their_noise(self, release) -> None:
        folder, plan, values = release
        total, grown, detailed = (m.mechanism.variance() for m in plan.at("block"))
        found = measured_columns(
            folder, level="block", answers=["total", "grown=minor", "sex=f & age=18-64,65+", "age=18-64"]
        )
        assert found.queries == ("total", "sex * grown", "sex * grown", "detailed")
        np.testing.assert_array_equal(found.values[:, 0], values[:, 0])
        np.testing.assert_array_equal(found.values[:, 1], values[:, 1] + values[:, 3])
        np.testing.assert_array_equal(found.values[:, 2], values[:, 2])
        np.testing.assert_array_equal(found.values[:, 3], values[:, 6] + values[:, 9])
        np.testing.assert_allclose(np.diag(found.covariance), [total, 2 * grown, grown, 2 * detailed])
        assert found.covariance[1, 2] == 0.0, "different answers of one query have independent noise"
        both = measured_columns(folder, level="block", answers=["sex=f", "grown=minor"])
        assert both.covariance[0, 1] == pytest.approx(grown), "they share the answer f * minor"

    def test_structural_zeros_are_left_out(self, release) -> None:
        folder, _, values = release
        found = measured_columns(folder, level="block", answers=["age=65+"])  # no old men
        np.testing.assert_array_equal(found.values[:, 0], values[:, 7])

    def test_one_statistic_knows_its_mechanism(self, release) -> None:
        folder, plan, values = release
        found = measured_statistic(folder, level="block", geocode="00003", answer="total")
        assert found.value[0] == values[3, 0]
        assert found.noise[0].name == plan.at("block")[0].mechanism.name
        assert isinstance(plan.at("block")[0].mechanism, DiscreteGaussian)

    def test_command_agrees_with_the_function(self, release) -> None:
        folder, _, _ = release
        found = das("infer", "regression", folder, "--level", "block", "--response", "grown=minor", "--on", "total")
        columns = measured_columns(folder, level="block", answers=["grown=minor", "total"])
        variances = np.diag(columns.covariance)
        fit = corrected_fit(columns.values[:, 1], columns.values[:, 0], noise=variances[1], noise_y=variances[0])
        assert found["corrected"]["coefficients"]["total"]["estimate"] == pytest.approx(fit.coefficients[1])
        assert found["naive"]["rows"] == 60

    @pytest.mark.slow
    def test_exact_likelihood_from_the_noise_that_the_release_states(self, release) -> None:
        folder, plan, values = release
        asked = ["infer", "regression", folder, "--level", "block", "--likelihood", "--on", "total", "--response"]
        found = das(*asked, "grown=minor")["likelihood"]
        assert found["lower"] < found["slope"] < found["upper"]
        noise = [CountNoise.of(plan.at("block")[0].mechanism), CountNoise.of(plan.at("block")[1].mechanism, 2)]
        sums = values[:, 1] + values[:, 3]
        fit = fit_measured_counts(values[:, 0], sums, noise_x=noise[0], noise_y=noise[1])
        assert found["slope"] == pytest.approx(float(fit.coefficients[1]))
        with pytest.raises(UsageError, match="same noise"):
            regress_release(folder, level="block", response="sex=f", on=["grown=minor"], likelihood=True)
        with pytest.raises(UsageError, match="one regressor"):
            regress_release(folder, level="block", response="total", on=["sex=f", "sex=m"], likelihood=True)

    def test_a_problem_can_name_a_measurement(self, release, tmp_path: Path) -> None:
        folder, _, values = release
        path = tmp_path / "problem.toml"
        model = '[model]\nname = "poisson-gamma"\nshape = 2\nrate = "1"\n'.replace('"1"', "1")
        path.write_text(
            f'[released]\nrelease = "{folder}"\nlevel = "block"\ngeocode = "00005"\nanswer = "total"\n{model}'
        )
        statistic, _ = read_problem(path)
        assert statistic.value[0] == values[5, 0]

    @pytest.mark.parametrize(
        ("answers", "level", "words"),
        [
            (["sex=w"], "block", "not a label of .sex"),
            (["sx=f"], "block", "did you mean .sex"),
            (["total"], "blok", "did you mean block"),
            (["total"], "county", "no noisy measurements"),
        ],
    )
    def test_unknown_labels_and_levels(self, release, answers: list[str], level: str, words: str) -> None:
        with pytest.raises(UsageError, match=words):
            measured_columns(release[0], level=level, answers=answers)

    def test_unknown_places_and_sums(self, release) -> None:
        with pytest.raises(UsageError, match="did you mean 00003"):
            measured_statistic(release[0], level="block", geocode="000003", answer="total")
        with pytest.raises(UsageError, match="not measured alone"):
            measured_statistic(release[0], level="block", geocode="00003", answer="sex=f")

    def test_a_folder_without_a_release(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no finished release"):
            measured_columns(tmp_path, level="block", answers=["total"])


class TestCsv:
    @pytest.fixture
    def csv(self, tmp_path: Path) -> Path:
        rng = np.random.default_rng(2)
        x = rng.poisson(10, 60)
        y = -5 + 4 * x + rng.normal(0, 5, 60)
        noisy = np.column_stack([x + rng.laplace(0, 2, 60), y + rng.laplace(0, 2, 60)])
        path = tmp_path / "data.csv"
        np.savetxt(path, noisy, delimiter=",", header="x,y", comments="")
        return path

    @pytest.mark.slow
    def test_all_three_fits(self, csv: Path) -> None:
        noise = ["--noise", "x=laplace:2", "--noise", "y=laplace:2", "--likelihood"]
        found = das("infer", "regression", csv, "--response", "y", "--on", "x", *noise)
        assert found["naive"]["coefficients"]["x"]["upper"] < 4
        assert found["likelihood"]["lower"] < 4 < found["likelihood"]["upper"]
        text = CliRunner().invoke(cli.das, ["infer", "regression", str(csv), "--response", "y", "--on", "x", *noise])
        assert "corrected (60 rows" in text.stdout
        assert "profile" in text.stdout

    def test_noise_that_exceeds_the_residuals_is_remarked_on(self, csv: Path) -> None:
        arguments = ["infer", "regression", str(csv), "--response", "y", "--on", "x", "--noise", "y=laplace:40"]
        assert "less than the stated noise" in CliRunner().invoke(cli.das, arguments).stdout

    def test_a_refused_correction_keeps_the_naive_fit(self, csv: Path) -> None:
        found = das("infer", "regression", csv, "--response", "y", "--on", "x", "--noise", "x=laplace:50")
        assert "positive definite" in found["corrected"]["refused"]
        assert found["naive"]["rows"] == 60

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--response", "z", "--on", "x"], "no column"),
            (["--response", "y", "--on", "x", "--noise", "x:2"], "COLUMN=MECHANISM"),
            (["--response", "y", "--on", "x", "--noise", "x=round:2"], "no density"),
            (["--response", "y", "--on", "x", "--likelihood"], "noise for both"),
            (["--response", "y"], "needs a release or file"),
        ],
    )
    def test_bad_arguments_are_named(self, csv: Path, arguments: list[str], words: str) -> None:
        with pytest.raises(ProblemsFound, match=words):
            das("infer", "regression", csv, *arguments)

    def test_page(self, tmp_path: Path) -> None:
        done = CliRunner().invoke(cli.das, ["infer", "regression", "--page", str(tmp_path / "page.html")])
        assert done.exit_code == 0
        assert (tmp_path / "page.html").read_text().count('role="img"') == 3


def test_a_maximum_at_zero_is_given_an_interval_and_no_standard_error(tmp_path: Path) -> None:
    path = tmp_path / "problem.toml"
    path.write_text(PROBLEM.replace("37.4", "-3.0"))
    found = das("infer", "mcem", path)
    assert found["standard_error"] is None
    assert found["information"] is None
    assert found["exact"]["upper"] > 10
    assert "end of the parameter's range" in found["note"]
    shown = CliRunner().invoke(cli.das, ["infer", "mcem", str(path)]).output
    assert "standard_error    -" in shown


def test_a_file_that_cannot_be_written_is_named(problem: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere") as caught:
        das("infer", "abc", problem, "--draws", "10", "--out", tmp_path / "nowhere" / "draws.parquet")
    assert "nowhere" in str(caught.value.filename)  # what the message names


def test_unknown_keys_name_the_known_ones_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "problem.toml"
    path.write_text(PROBLEM + "spread = 3\n")
    with pytest.raises(ConfigError, match="poisson-gamma has shape, rate, exposure"):
        read_problem(path)
