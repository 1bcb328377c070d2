"""Every failure is a message that names the place and the remedy, and an exit code that a script can use."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from das import cli
from das.errors import ProblemsFound
from das.storage.ledger import Ledger
from pipelines.stages import measure

if TYPE_CHECKING:
    from conftest import Ended

Run = Callable[..., "Ended"]


def alter(config: Path, old: str, new: str) -> None:
    text = config.read_text()
    assert text.count(old) == 1
    config.write_text(text.replace(old, new))


# -- 2: usage and config -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("runn",), "No such command 'runn'"),
        (("run",), "Missing argument 'CONFIG'"),
        (("run", "config.toml"), "Missing option '--out'"),
        (("run", "config.toml", "--output", "x"), "No such option"),
        (("ledger", "nowhere"), "'nowhere' does not exist"),
        (
            ("check", "nowhere.toml"),
            "nowhere.toml: there is no such file, and no such preset; `das init DIR` writes",
        ),
        (("plan", "pl94-200"), "did you mean 'pl94-2020'?"),
        (("check", "."), ".: is a folder; name the config file in it"),
        (("demo", "--blocks", "3"), "3 is not in the range"),
    ],
)
def test_usage(arguments: tuple[str, ...], message: str, run: Run) -> None:
    ended = run(*arguments)
    assert ended.code == 2
    assert ended.stdout == ""
    assert message in ended.stderr


def test_all_problems_of_a_config_come_at_once_with_key_and_remedy(run: Run, config: Path) -> None:
    alter(config, 'framework = "pure"', 'framwork = "pure"')
    alter(config, 'geocode = "village"', 'geocde = "village"')
    alter(config, 'district = "1/4"', "district = 0.25")
    ended = run("check", config)
    assert ended.code == 2
    lines = ended.stderr.splitlines()
    assert "das: config.toml, privacy.framwork: unknown key; did you mean 'framework'?" in lines
    assert "das: config.toml, input.geocde: unknown key; did you mean 'geocode'?" in lines
    assert any("strategy.geolevels.district: 0.25 is a float; write an exact fraction" in line for line in lines)
    assert all(line.startswith("das: config.toml, ") for line in lines)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('village = "1/2"', 'village = "1/4"', "strategy.geolevels: the shares sum to 3/4, not 1; 1/4 is missing"),
        (
            'village = "1/2"',
            'vilage = "1/2"',
            "strategy.geolevels.vilage: is not a level of the geography; did",
        ),
        ('level = "province"', 'level = "provinces"', "invariant.1.level: 'provinces' is not a level; did you mean"),
        ('"sex * grown" = "1/4"', '"sex * groan" = "1/4"', "did you mean 'grown'?"),
        ("[release]", "[release", "config.toml: is not valid TOML"),
        ('name = "example"', 'name = "../example"', "release.name"),
    ],
)
def test_config(old: str, new: str, message: str, run: Run, config: Path) -> None:
    alter(config, old, new)
    ended = run("plan", config)
    assert ended.code == 2
    assert message in ended.stderr


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--no_such_option=3", "option --no_such_option: is unknown to Beam"),
        ("--runner=NoRunner", "--runner=NoRunner: is not a runner that can be used here; in-memory, multi-process"),
    ],
)
def test_unknown_beam_options_are_found_before_anything_is_written(
    option: str, message: str, run: Run, config: Path, tmp_path: Path
) -> None:
    ended = run("run", config, "--out", tmp_path / "out", "--", option)
    assert ended.code == 2
    assert message in ended.stderr
    assert not (tmp_path / "out").exists()


def test_folders_that_are_taken(run: Run, config: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "thesis"
    foreign.mkdir()
    (foreign / "chapter.txt").write_text("precious")
    ended = run("run", config, "--out", foreign)
    assert ended.code == 2
    assert f"{foreign}: is not empty and holds no run of das; name a new folder with --out" in ended.stderr
    assert [path.name for path in foreign.iterdir()] == ["chapter.txt"]
    demo = run("demo", "--out", foreign)
    assert demo.code == 2
    assert f"{foreign}: is not empty" in demo.stderr

    file = foreign / "chapter.txt"
    for command in (("run", config), ("demo",)):
        for out in (file, file / "out"):
            ended = run(*command, "--out", out)
            assert ended.code == 2
            assert f"das: {file}: is a file; name a new folder with --out" in ended.stderr
    assert file.read_text() == "precious"

    assert run("tabulate", config, "--out", tmp_path / "out").code == 0
    alter(config, 'name = "example"', 'name = "other"')
    ended = run("run", config, "--out", tmp_path / "out")
    assert ended.code == 2
    assert "holds another release (example, plan " in ended.stderr
    assert "name another folder with --out" in ended.stderr


@pytest.mark.parametrize("command", [("run",), ("tabulate",)])
def test_object_storage_is_refused_by_name(
    command: tuple[str, ...], run: Run, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    ended = run(*command, config, "--out", "gs://bucket/out")
    assert ended.code == 2
    assert "a run cannot be written to gs://; name a folder of this machine" in ended.stderr
    assert sorted(tmp_path.rglob("*")) == before
    alter(config, '"people.csv"', '"s3://bucket/people.csv"')
    ended = run("check", config)
    assert ended.code == 3
    assert "s3://bucket/people.csv: files of s3:// are not read; copy them here, or mount them" in ended.stderr


# -- 3: input ----------------------------------------------------------------------------------------------------------


def test_every_bad_record_is_named_by_file_and_row(run: Run, config: Path, tmp_path: Path) -> None:
    people = config.parent / "people.csv"
    rows = people.read_text().splitlines()
    rows[3], rows[10] = "N99,f,0-14", "N11,F,0-14"
    people.write_text("\n".join(rows) + "\n")
    for command in (("check", config), ("run", config, "--out", tmp_path / "out")):
        ended = run(*command)
        assert ended.code == 3
        assert ended.stdout == ""
        wrong = [line for line in ended.stderr.splitlines() if line.startswith("das: ")]
        assert wrong == [
            "das: people.csv, row 4: the geocode is not on the spine; add it to the geography file, or mend the record",
            "das: people.csv, row 11: 'sex' has an unknown value; known: 'f', 'm'",
        ]
    assert not (tmp_path / "out" / "confidential" / "histograms").exists()
    assert not (config.parent / "ledger.sqlite").exists()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("people.csv", None, "people.csv: no such file"),
        ("people.csv", "village,sex\nN11,f\n", "people.csv: has no column 'age'"),
        ("people.csv", "village;sex;age\nN11;f;0-14\n", "people.csv: separates its columns by semicolons"),
        ("places.csv", None, "places.csv: does not exist"),
        ("places.csv", "province,district,village\nN,N1,N11\nN,N2,N11\n", "row 3"),
    ],
)
def test_input(file: str, content: str | None, message: str, run: Run, config: Path, tmp_path: Path) -> None:
    path = config.parent / file
    path.unlink()
    if content is not None:
        path.write_text(content)
    for command in (("check", config), ("run", config, "--out", tmp_path / "out")):
        ended = run(*command)
        assert ended.code == 3
        assert message in ended.stderr


@pytest.mark.parametrize("content", [None, "catchment,village\nC1,N99\n", "catchment;village\n"])
def test_areas_that_cannot_be_read_cost_nothing(content: str | None, run: Run, config: Path, tmp_path: Path) -> None:
    """Only the last stages need them, and the budget would be spent by then."""
    text = config.read_text()
    assert "\n[[geography.areas]]" not in text
    config.write_text(
        text + '\n[[geography.areas]]\nname = "catchment"\nfile = "catchments.csv"\n'
        'area = "catchment"\ngeocode = "village"\n'
    )
    if content is not None:
        (config.parent / "catchments.csv").write_text(content)
    ended = run("run", config, "--out", tmp_path / "out")
    assert ended.code in (2, 3)
    assert "catchments.csv" in ended.stderr
    assert not (config.parent / "ledger.sqlite").exists()


def test_a_misspelt_file_is_not_answered_with_one_of_another_purpose(run: Run, config: Path) -> None:
    (config.parent / "places.csv").rename(config.parent / "geo.csv")
    refused = run("check", config).stderr
    assert "places.csv: does not exist; check the path" in refused, "people.csv is alike, and holds the records"
    (config.parent / "geo.csv").rename(config.parent / "place.csv")
    assert "places.csv: does not exist; did you mean 'place.csv'?" in run("check", config).stderr


def test_truncated_parquet(run: Run, config: Path, tmp_path: Path) -> None:
    (config.parent / "people.parquet").write_bytes(b"PAR1 and no more")
    alter(config, '"people.csv"', '"people.parquet"')
    for command in (("check", config), ("run", config, "--out", tmp_path / "out")):
        ended = run(*command)
        assert ended.code == 3
        assert "people.parquet: cannot be read as Parquet" in ended.stderr
        assert "the file again" in ended.stderr


# -- 4: infeasible -----------------------------------------------------------------------------------------------------


def test_facts_that_contradict_each_other(run: Run, config: Path, tmp_path: Path) -> None:
    (config.parent / "least.csv").write_text("geocode,f,m\nN11,9,9\n")
    (config.parent / "most.csv").write_text("geocode,f,m\nN11,9,8\n")
    for sense, file in ((">=", "least.csv"), ("<=", "most.csv")):
        bound = f'\n[[bound]]\nquery = "sex"\nlevel = "village"\nsense = "{sense}"\nsource = "{file}"\n'
        bound += 'missing = "unlimited"\n'
        config.write_text(config.read_text() + bound)
    ended = run("check", config)
    assert ended.code == 4
    assert "village N11, query 'sex', answer 'm': must be at least 9 (least.csv)" in ended.stderr
    assert "village N11, query 'sex', answer 'm': must be at most 8 (most.csv)" in ended.stderr
    assert "mend or drop any one of these" in ended.stderr
    assert "answer 'f'" not in ended.stderr


def test_facts_that_contradict_the_structural_zeros(run: Run, config: Path, tmp_path: Path) -> None:
    zero = (
        '[[schema.structural_zero]]\nname = "no old men"\nlabels = { sex = "m", age = "65+" }\n\n[strategy.geolevels]'
    )
    alter(config, "[strategy.geolevels]", zero)
    people = config.parent / "people.csv"
    people.write_text(people.read_text().replace("m,65+", "m,25-64"))
    (config.parent / "least.csv").write_text("geocode,m * 65+\nN11,1\n")
    bound = '\n[[bound]]\nquery = "sex * age"\nlevel = "village"\nsense = ">="\nsource = "least.csv"\n'
    config.write_text(config.read_text() + bound)
    ended = run("check", config)
    assert ended.code == 4
    assert "answer 'm * 65+': must be at least 1 (least.csv); this cannot hold at all" in ended.stderr
    assert "structural zeros 'no old men'" in ended.stderr


# -- 6: interrupted ----------------------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_while_workers_write(
    run: Run, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first measurement on nothing can be written any more, a worker's own error report included."""
    full = False
    flush, answers = os.fsync, measure.noisy_answers

    def fsync(descriptor: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    def first_answers(*arguments: object) -> object:
        nonlocal full
        full = True
        return answers(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        patched.setattr(measure, "noisy_answers", first_answers)
        ended = run("measure", config, "--out", tmp_path / "out")
    assert ended.code == 6
    assert "there is no room on the disk" in ended.stderr
    assert "free space and run the same command again" in ended.stderr
    assert not (tmp_path / "out" / "release" / "measurements").exists()
    assert run("measure", config, "--out", tmp_path / "out").code == 0
    kinds = [entry.kind for entry in Ledger.open(config.parent / "ledger.sqlite").entries()]
    assert kinds == ["open", "reserve", "commit"]


def test_a_disk_that_is_full_before_the_run_begins(
    run: Run, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "out"))

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", mkdir)
        ended = run("run", config, "--out", tmp_path / "out")
    assert ended.code == 6
    assert "free space and run the same command again" in ended.stderr


# -- 1 and --debug -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 1, 2])
def test_debug_shows_the_traceback_wherever_it_is_written(place: int) -> None:
    arguments = ["check", "nowhere.toml"]
    arguments.insert(place, "--debug")
    with pytest.raises(ProblemsFound, match="there is no such file"):
        cli.main(arguments)


def test_what_follows_the_dashes_is_not_ours(run: Run, config: Path, tmp_path: Path) -> None:
    ended = run("run", config, "--out", tmp_path / "out", "--", "--debug")
    assert ended.code == 2
    assert "option --debug: is unknown to Beam" in ended.stderr
