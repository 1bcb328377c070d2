"""The wall: after the measurements nothing needs the confidential side, and nothing of it shows on the other."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pickle
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import das
from das import cli
from das.checks import check
from das.demo.starter import write_starter
from das.errors import BudgetError, InputError
from das.exact import digest_of
from das.noise.stream import RunKey
from das.records.read import Batch
from das.runner import find_runner
from das.schema.counts import TrueCounts
from das.storage.ledger import Ledger
from pipelines.elements.arrays import Arrays, ArraysCoder, sparse_arrays
from pipelines.elements.context import WorkerContext
from pipelines.stages.measure import MeasureShard

if TYPE_CHECKING:
    from conftest import Ended, Processes, World

Tree = Callable[[Path], dict[str, str]]
PLANTED = 7919
SHOWN = re.compile(rb"(?<![0-9A-Za-z.])7[,._' ]?919(?![0-9A-Za-z])")
DIGEST = re.compile(rb"[0-9a-f]{32,}")


def plant(config: Path) -> None:
    """Give a village that was empty 7,919 inhabitants of one kind."""
    with (config.parent / "people.csv").open("a") as file:
        file.write("N13,f,65+\n" * PLANTED)


def shows(content: bytes) -> bool:
    return SHOWN.search(DIGEST.sub(b"", content)) is not None


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run the command line here; what Beam's threads write is caught too."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    code = 0
    try:
        cli.main([str(argument) for argument in arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return code, *capfd.readouterr()


# -- what may be taken away --------------------------------------------------------------------------------------------


def test_estimation_and_publication_need_neither_the_confidential_folder_nor_the_records(
    country: World, starter: Path, tmp_path: Path, tree: Tree
) -> None:
    plan, out = das.load(starter), tmp_path / "out"
    find_runner().run(plan, out, upto="measure", testing_key="country")
    shutil.rmtree(out / "confidential")
    (starter.parent / "people.csv").unlink()
    das.run(plan, out=out, testing_key="country")
    assert tree(out / "release") == tree(country.release)
    assert not (out / "confidential").exists()


def test_without_the_ledger_nothing_is_called_a_release(starter: Path, tmp_path: Path) -> None:
    """And a ledger that is gone is not begun anew, which would forget what was spent."""
    plan, out = das.load(starter), tmp_path / "out"
    find_runner().run(plan, out, upto="measure")
    ledger = starter.parent / "ledger.sqlite"
    ledger.rename(tmp_path / "elsewhere")
    with pytest.raises(BudgetError, match="the ledger is gone; restore it"):
        das.run(plan, out=out)
    assert not ledger.exists()
    assert not (out / "release" / "manifest.json").exists()


# -- what must not show ------------------------------------------------------------------------------------------------


def test_the_search_finds_what_it_looks_for() -> None:
    for text in (b"7919", b"7,919", b'"count": 7919}', b"cell=7919;", b"N13 7.919"):
        assert shows(text)
    for text in (b"17919", b"79190", b"c3a7919f", hashlib.sha256(b"").hexdigest().encode() + b"7919"):
        assert not shows(text)


@pytest.fixture(scope="module")
def planted(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """A release of the planted count, in a new folder and under an open umask."""
    folder = tmp_path_factory.mktemp("planted")
    config = write_starter(folder / "input")
    plant(config)
    out = folder / "new" / "out"
    return out, processes("run", config, "--out", out, "--testing-key", "planted", umask=0)


def test_a_count_shows_in_no_text_of_the_run_and_in_no_name(planted: tuple[Path, Ended]) -> None:
    out, ended = planted
    assert ended.code == 0
    texts = {"stdout": ended.stdout.encode(), "stderr": ended.stderr.encode()}
    for path in sorted(out.rglob("*")):
        inside = path.relative_to(out)
        if inside.parts[0] == "confidential":
            continue
        assert not shows(os.fsencode(inside))
        if path.suffix in (".json", ".html", ".toml", ".log"):
            texts[str(inside)] = path.read_bytes()
    assert {"run.log", "run.json", "release/manifest.json", "release/privacy.html"} <= texts.keys()
    assert "release/measurements/_committed.json" in texts
    for name, content in texts.items():
        assert not shows(content), name
    # The census itself is public at the provinces; nobody's machine is.
    machine = os.fsencode(out.parents[1])
    assert not any(machine in content for name, content in texts.items() if name.startswith("release"))


@pytest.mark.parametrize(
    ("file", "rows", "reason"),
    [
        ("people.csv", f"N13,f,{PLANTED}\n", None),  # an unknown label is named, as it is no count
        ("counts.csv", f"village,sex,age,count\nN13,f,65+,-{PLANTED}\n", "'count' is negative"),
        ("counts.csv", f"village,sex,age,count\nN13,f,65+,{PLANTED}.5\n", "'count' is not a whole number"),
        ("counts.csv", f"village,sex,age,count\nN13,f,65+,{PLANTED}e\n", "'count' is missing or not a number"),
        ("counts.csv", f"village,sex,age,count\nN13,f,65+,{PLANTED},1\n", "another number of fields"),
    ],
)
def test_a_count_shows_in_no_message_about_it(
    file: str, rows: str, reason: str | None, starter: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if reason is None:
        plant(starter)
        rows, reason = "N13,f,ancient\n", "'age' has an unknown value"
        with (starter.parent / file).open("a") as people:
            people.write(rows)
    else:
        (starter.parent / file).write_text(rows)
        starter.write_text(starter.read_text().replace('microdata = "people.csv"', f'histograms = "{file}"'))
    for command in (("check", starter), ("run", starter, "--out", tmp_path / "out")):
        code, stdout, stderr = run(capfd, *command)
        assert code == 3
        assert reason in stderr
        assert file in stderr
        assert "row" in stderr
        assert not shows(stdout.encode() + stderr.encode())


@pytest.mark.parametrize("name", ["counts.csv", "counts.parquet"])
def test_no_damage_to_a_file_makes_a_message_quote_it(name: str, starter: Path) -> None:
    """Random bytes lost, changed and added: each time a problem that names the file, or nothing, and no other error."""
    rows = [("N13", "f", "65+", PLANTED), ("N11", "m", "0-14", PLANTED), ("S11", "f", "25-64", PLANTED)] * 4
    path = starter.parent / name
    table = pa.table({n: [row[i] for row in rows] for i, n in enumerate(("village", "sex", "age", "count"))})
    pa_csv.write_csv(table, path) if path.suffix == ".csv" else pq.write_table(table, path)
    starter.write_text(starter.read_text().replace('microdata = "people.csv"', f'histograms = "{name}"'))
    plan, whole, rng = das.load(starter), path.read_bytes(), random.Random(PLANTED)
    assert check(plan)["ok"]
    messages = []
    for _ in range(80):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(content))
            junk = rng.choice([b'"', b"\n", b",", b"\0", b"\xff\xfe", b"\r", b"-", bytes([rng.randrange(256)])])
            content[at : at + rng.choice([0, 1, 5, 5_000])] = junk
        path.write_bytes(content)
        try:
            check(plan)
        except InputError as error:
            messages.append(str(error))
    assert len(messages) > 40
    assert all(name in message and not shows(message.encode()) for message in messages)


def test_a_count_shows_in_no_message_about_a_bound_that_it_breaks(
    starter: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plant(starter)
    (starter.parent / "beds.csv").write_text("geocode,total\nN13,5\n")
    bound = '[[bound]]\nquery = "total"\nlevel = "village"\nsense = "<="\nsource = "beds.csv"\nreason = "beds"\n'
    bound += 'missing = "unlimited"\n'
    starter.write_text(starter.read_text() + bound)
    for command in (("check", starter), ("run", starter, "--out", tmp_path / "out")):
        code, _, stderr = run(capfd, *command)
        assert code == 3
        assert "N13" not in stderr, "that a place has more people than a limit is about them"
        assert "do not obey the declared bound <= beds.csv" in stderr
        assert not shows(stderr.encode())
    assert not (tmp_path / "input" / "ledger.sqlite").exists()  # found before anything is charged


def test_the_text_of_an_unexpected_error_is_not_shown(
    starter: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError(f"N13 has {PLANTED} people")

    monkeypatch.setattr("pipelines.stages.measure.noisy_answers", broken)
    code, stdout, stderr = run(capfd, "run", starter, "--out", tmp_path / "out")
    assert code == 1
    assert "das: an unexpected " in stderr
    assert "Traceback" not in stderr
    assert not shows(stdout.encode() + stderr.encode())


SPOIL = """
import importlib.abc, importlib.util, sys

class Spoil(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "pipelines.stages.measure":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def spoiled(module):
            load(module)
            def broken(*_):
                raise ValueError("N13 has 7919 people")
            module.noisy_answers = broken
        spec.loader.exec_module = spoiled
        return spec

sys.meta_path.insert(0, Spoil())
"""


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["in-memory", "multi-process"])
def test_nor_by_a_worker_process(runner: str, starter: Path, tmp_path: Path) -> None:
    """A module that Python imports at its start breaks a step in whichever process runs it."""
    (tmp_path / "sitecustomize.py").write_text(SPOIL)
    command = [Path(sys.executable).with_name("das"), "run", starter, "--out", tmp_path / "out", "--testing-key", "a"]
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [*command, "--", f"--runner={runner}"], env=os.environ | {"PYTHONPATH": path}, capture_output=True
    )
    assert ended.returncode == 1
    assert b"das: an unexpected " in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert not shows(ended.stdout + ended.stderr)


def test_elements_do_not_show_what_they_carry() -> None:
    counts = TrueCounts(np.array([0]), np.array([1]), np.array([PLANTED]))
    batch = Batch(pa.table({"count": [PLANTED]}), 1)
    for element in (counts, sparse_arrays(counts), batch, RunKey(b"7919" * 8)):
        for text in (repr(element), str(element), f"{element}", f"{[element]}"):
            assert not shows(text.encode())
            assert "7919" not in text


def test_arrays_come_back_as_they_were() -> None:
    named = {"unit": np.array([3, 4], np.int64), "empty": np.zeros((0, 5), np.int8), "x": np.array([[1.5]], np.float32)}
    coder = ArraysCoder()
    arrays = coder.decode(coder.encode(Arrays(named)))
    for name, array in named.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert (arrays[name] == array).all()
        assert not arrays[name].flags.writeable
    assert coder.is_deterministic()
    assert coder.encode(arrays) == coder.encode(Arrays(named))


def test_the_key_does_not_travel_with_the_pipeline(country: World, tmp_path: Path) -> None:
    key = tmp_path / "run.key"
    key.write_bytes(RunKey.for_testing("country").secret)
    work = WorkerContext(country.plan, country.release / "facts" / "spine.parquet", tmp_path)
    step = MeasureShard(work, country.out / "confidential" / "histograms", key)
    assert key.read_bytes() not in pickle.dumps(step)


def test_what_is_published_of_the_input_is_salted(starter: Path, tmp_path: Path) -> None:
    """A plain hash of the records, or of a ledger entry that holds one, would let anyone test a candidate record."""
    out = tmp_path / "out"
    find_runner().run(das.load(starter), out, upto="measure")
    published = json.loads((out / "release" / "measurements" / "_committed.json").read_bytes())
    content = (starter.parent / "people.csv").read_bytes()
    plain = hashlib.sha256(content).digest()
    together = hashlib.sha256(plain.hex().encode()).digest()  # of all files' hashes, here of one
    salt = (out / "confidential" / "commitment.salt").read_bytes()
    assert len(salt) == 32
    assert published["inputs"] == [
        {"name": "people.csv", "sha256_salted": hmac.new(salt, together, hashlib.sha256).hexdigest()}
    ]
    entries = Ledger.open(starter.parent / "ledger.sqlite").entries()
    of_plain = hashlib.sha256(plain.hex().encode())
    candidates = {plain.hex(), of_plain.hexdigest()}
    assert not candidates & {entry.input_digest for entry in entries}
    how = json.loads((out / "confidential" / "histograms" / "_committed.json").read_bytes())["how"]
    read = bytes.fromhex(digest_of({"files": of_plain.hexdigest(), "how": how}))  # the files, and how they were read
    assert entries[-1].input_digest == hmac.new(salt, read, hashlib.sha256).hexdigest()
    public = b"".join(path.read_bytes() for path in (out / "release").rglob("*") if path.is_file())
    assert plain not in public
    assert not any(candidate.encode() in public for candidate in candidates)


# -- who may enter -----------------------------------------------------------------------------------------------------


def check_modes(out: Path) -> None:
    modes = {path.relative_to(out): stat.S_IMODE(path.stat().st_mode) for path in (out, *out.rglob("*"))}
    for path, mode in modes.items():
        inside = path.parts[:1] == ("confidential",) or path.name == "run.log"
        wanted = (0o700 if inside else 0o755) if (out / path).is_dir() else (0o600 if inside else 0o644)
        assert oct(mode) == oct(wanted), path


def test_permissions_under_a_umask_that_forbids_nothing(planted: tuple[Path, Ended]) -> None:
    check_modes(planted[0])


def test_permissions_under_a_umask_that_forbids_all(processes: Processes, starter: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    assert processes("measure", starter, "--out", out, umask=0o077).code == 0
    check_modes(out)
