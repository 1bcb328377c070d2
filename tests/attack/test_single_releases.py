"""The confidential side of the commands beside `das run`: `synth`, `table`, `compare`, `simulate`, `tune`, `infer`."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import das
from das.cli import das as command
from das.demo.starter import write_starter
from das.errors import ConfigError, InputError, ProblemsFound, UsageError
from das.evaluation import finished_runs
from das.evaluation.compare import compare
from das.evaluation.finished_runs import FinishedRun
from das.evaluation.tuning import read_targets
from das.inference.input_file import read_problem
from das.storage import hardening
from das.storage.permissions import make_new
from das.synthesis.graphical.model_file import MODEL_FILE, read_model
from das.synthesis.release import release_synthetic
from das.table_release import plan
from das.table_release.release import release_table

DIGITS = "9" * 5000
RECORDS = "sex,age\n" + "f,young\nm,old\n" * 40
SYNTH = """\
name = "people"
[input]
file = "people.csv"
dataset = "people"
total = "5"
{data}
[privacy]
epsilon = "1"
[columns]
sex = ["f", "m"]
age = ["young", "old"]
"""
TABLE = SYNTH.replace("[privacy]", '[mechanism]\nname = "k-norm"\n[privacy]')


def written(folder: Path, text: str = SYNTH, *, data: str = "", records: str = RECORDS) -> Path:
    (folder / "people.csv").write_text(records)
    (folder / "config.toml").write_text(text.format(data=data))
    return folder / "config.toml"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestHostileFiles:
    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(f"\n[output]\nrows = {DIGITS}\n", id="digits"),
            pytest.param(f"\n[options]\nx = {'[' * 3000}{']' * 3000}\n", id="depth"),
            pytest.param("\n[options]\nx = 0000-00-00\n", id="date"),
        ],
    )
    @pytest.mark.parametrize("release", [lambda c, o: release_synthetic("histogram", c, o), release_table])
    def test_a_config_that_python_cannot_hold_is_refused(self, release: Any, damage: str, tmp_path: Path) -> None:
        config = written(tmp_path, (SYNTH if release is not release_table else TABLE) + damage)
        with pytest.raises(ConfigError, match=r"config\.toml"):
            release(config, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        assert not (tmp_path / "ledger.sqlite").exists()

    @pytest.mark.parametrize("text", [f"x = {DIGITS}", f"x = {'[' * 3000}{']' * 3000}", "x = 0000-00-00", "\xff"])
    def test_so_are_targets_and_models(self, text: str, tmp_path: Path) -> None:
        file = tmp_path / "file.toml"
        file.write_bytes(text.encode("latin-1"))
        country = das.load(write_starter(tmp_path / "country"))
        with pytest.raises(ConfigError, match=r"file\.toml"):
            read_targets(file, country)
        with pytest.raises(ConfigError, match=r"file\.toml"):
            read_problem(file)

    def test_a_model_file_is_no_program(self, tmp_path: Path) -> None:
        path = tmp_path / MODEL_FILE
        content = {"columns": {"sex": ["f", "=1+1"]}, "zeros": [], "parameters": [], "total": 1}
        for text in (json.dumps(content), "[" * 100_000, f'{{"columns": {DIGITS}}}'):
            path.write_text(text)
            with pytest.raises(InputError, match="is not a model file"):
                read_model(path)


class TestFormulas:
    @pytest.mark.parametrize("release", [lambda c, o: release_synthetic("histogram", c, o), release_table])
    def test_a_declared_label_that_is_a_formula_is_refused(self, release: Any, tmp_path: Path) -> None:
        text = SYNTH if release is not release_table else TABLE
        config = written(tmp_path, text.replace('"f", "m"', '"f", "m", "=1+1"'))
        with pytest.raises(ConfigError, match="is a formula to a spreadsheet"):
            release(config, tmp_path / "out")

    def test_so_is_a_name_of_a_column(self, tmp_path: Path) -> None:
        config = written(tmp_path, SYNTH.replace("sex =", '"=1+1" ='))
        with pytest.raises(ConfigError, match="is a formula to a spreadsheet"):
            release_synthetic("histogram", config, tmp_path / "out")

    def test_so_is_one_that_is_taken_from_the_records_and_it_is_not_quoted(self, tmp_path: Path) -> None:
        text = SYNTH.replace('["f", "m"]', '"inferred"').replace('"1"', '"1"\ndelta = "1/1000000"')
        config = written(tmp_path, text, records=RECORDS + "=1+1,old\n" * 60)
        with pytest.raises(InputError, match="are formulas to a spreadsheet") as refused:
            release_synthetic("stability", config, tmp_path / "out")
        assert "1+1" not in str(refused.value)
        assert not (tmp_path / "ledger.sqlite").exists()


class TestFolders:
    @pytest.mark.parametrize("release", [lambda c, o: release_synthetic("histogram", c, o), release_table])
    def test_a_folder_that_cannot_be_made_costs_nothing(self, release: Any, tmp_path: Path) -> None:
        config = written(tmp_path, SYNTH if release is not release_table else TABLE)
        with pytest.raises(UsageError, match="cannot be made"):
            release(config, tmp_path / "missing" / "out")
        assert not (tmp_path / "ledger.sqlite").exists()

    @pytest.mark.parametrize("release", [lambda c, o: release_synthetic("histogram", c, o), release_table])
    def test_a_folder_that_others_could_exchange_is_refused(self, release: Any, tmp_path: Path) -> None:
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared").chmod(0o777)
        config = written(tmp_path, SYNTH if release is not release_table else TABLE)
        with pytest.raises(UsageError, match="others may write it"):
            release(config, tmp_path / "shared" / "out")
        assert not (tmp_path / "ledger.sqlite").exists()

    def test_a_link_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "out").symlink_to("elsewhere")
        with pytest.raises(UsageError, match="symbolic link"):
            make_new(tmp_path / "out", private=True)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator can make another user's folder")
    def test_a_folder_of_another_user_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir(mode=0o777)
        os.chown(tmp_path / "out", 65534, 65534)
        before = mode_of(tmp_path / "out")
        with pytest.raises(UsageError, match="belongs to another user"):
            make_new(tmp_path / "out", private=True)
        assert mode_of(tmp_path / "out") == before

    def test_a_test_with_confidential_records_is_private_whatever_the_umask(self, tmp_path: Path) -> None:
        config, out = written(tmp_path), tmp_path / "out"
        before = os.umask(0)
        try:
            release_synthetic("histogram", config, out, testing_key="k", unprotected=True)
        finally:
            os.umask(before)
        assert mode_of(out) == 0o700
        assert {mode_of(path) for path in out.iterdir()} == {0o600}


def test_the_manifest_of_a_table_tells_days(tmp_path: Path) -> None:
    config = written(tmp_path, TABLE, data='data = "generated"')
    release_table(config, tmp_path / "out", testing_key="k")
    manifest = json.loads((tmp_path / "out" / "release" / "manifest.json").read_bytes())
    for moment in ("started", "finished"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", manifest[moment]), moment


@pytest.mark.parametrize("words", [["table", "plan", "{config}"], ["table", "{config}", "--out", "{out}"]])
def test_a_process_that_reads_a_table_cannot_be_traced(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hardened: list[bool] = []
    monkeypatch.setattr(hardening, "harden", lambda: hardened.append(True))
    monkeypatch.setattr(
        plan, "read_table", lambda *_: pytest.fail("a record was read before") if not hardened else None
    )
    config = written(tmp_path, TABLE)
    CliRunner().invoke(command, [word.format(config=config, out=tmp_path / "out") for word in words])
    assert hardened


class TestErrorsAgainstTheTruth:
    def test_confidential_data_are_compared_on_their_own_side_alone(self, tmp_path: Path) -> None:
        config = write_starter(tmp_path)
        config.write_text(re.sub(r'(?m)^data = "generated".*\n', "", config.read_text()))
        with pytest.raises(UsageError, match="its data are confidential"):
            compare(config, out=tmp_path / "page.html", runs=2)
        assert not (tmp_path / "page.html").exists()

    def test_runs_that_a_simulation_keeps_are_private_whatever_the_umask(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            FinishedRun(tallies={}, intervals={}, seconds={}).save(tmp_path / "run-0.npz")
        finally:
            os.umask(before)
        assert mode_of(tmp_path / "run-0.npz") == 0o600
        assert FinishedRun.load(tmp_path / "run-0.npz").tallies == {}

    def test_processes_of_a_simulation_cannot_be_traced(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        started: list[dict[str, Any]] = []

        def pool(*_: Any, **options: Any) -> ProcessPoolExecutor:
            started.append(options)
            raise UsageError

        monkeypatch.setattr(finished_runs, "ProcessPoolExecutor", pool)
        monkeypatch.setattr(finished_runs.World, "tabulate", lambda *_: None)
        with pytest.raises(ProblemsFound):
            list(finished_runs.finished_runs({}, tmp_path, 2, (), 2))
        assert started[0]["initializer"].__name__ == "harden"


KERNEL = """\
import sys
sys.path.insert(0, {package!r})
import small.kernel
print(small.kernel.double(21))
"""
EVIL = """\
import os, pickle, sys
class Evil:
    def __reduce__(self):
        return os.mkdir, (sys.argv[2],)
with open(sys.argv[1], "r+b") as file:
    file.write(pickle.dumps(Evil()))
"""


class TestCompiledKernels:
    """Numba unpickles the index of a kernel: whoever can write it runs code as the person who loads it."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Any:
        package = tmp_path / "packages" / "small"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "kernel.py").write_text(
            "from das.compiled import compiled\n\n\n@compiled\ndef double(x):\n    return 2 * x\n"
        )
        home = tmp_path / "home"
        home.mkdir()
        program = (
            "import os, das.compiled\n"
            "if {umask} is not None: os.umask({umask})\n"
            "from pathlib import Path\n"
            "das.compiled.kernel_root = lambda package=None: Path({home!r}, '.cache', 'das', 'kernels')\n"
        )

        def run(umask: int | None = None) -> subprocess.CompletedProcess[str]:
            text = program.format(umask=umask, home=str(home)) + KERNEL.format(package=str(package.parent))
            environment = {k: v for k, v in os.environ.items() if k != "DAS_CACHE"} | {"HOME": str(home)}
            done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True)
            return done

        run.home = home  # type: ignore[attr-defined]
        return run

    def test_nobody_else_can_write_them_whatever_the_umask(self, run: Any) -> None:
        assert run(umask=0).stdout == "42\n"
        made = list(run.home.rglob("*"))
        assert any(path.suffix == ".nbi" for path in made)
        for path in made:
            closed = [each for each in (path, *path.parents) if each.is_relative_to(run.home / ".cache")]
            assert any(mode_of(each) & 0o077 == 0 for each in closed), path

    def test_what_others_could_have_written_is_not_loaded(self, run: Any, tmp_path: Path) -> None:
        assert run().stdout == "42\n"
        index = next(run.home.rglob("*.nbi"))
        for path in (index, *index.parents):
            if path.is_relative_to(run.home / ".cache"):
                path.chmod(0o777)
        subprocess.run([sys.executable, "-c", EVIL, index, tmp_path / "owned"], check=True)
        assert run().stdout == "42\n"
        assert not (tmp_path / "owned").exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator can make another user's folder")
    def test_nor_is_what_belongs_to_another_user(self, run: Any, tmp_path: Path) -> None:
        assert run().stdout == "42\n"
        index = next(run.home.rglob("*.nbi"))
        subprocess.run([sys.executable, "-c", EVIL, index, tmp_path / "owned"], check=True)
        os.chown(index, 65534, 65534)
        assert run().stdout == "42\n"
        assert not (tmp_path / "owned").exists()
        os.chown(run.home / ".cache" / "das", 65534, 65534)
        refused = run()
        assert "others may write it" in refused.stderr
