"""A label and a count that stand in the records alone: searched for in all that a run writes, meanwhile and after."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from das.demo.starter import write_starter

LABEL = b"Zyxwvutsrq-canary"
COUNT = 7919
SHOWN = re.compile(rb"(?<![0-9A-Za-z.])7[,._' ]?919(?![0-9A-Za-z])")
DIGEST = re.compile(rb"[0-9a-f]{32,}")
TEXT = (".json", ".html", ".toml", ".log", ".txt", "")
"""Where the count is searched for; a published table may hold it by chance, after noise."""


def planted(folder: Path) -> Path:
    """The starter with a column that no attribute uses, and 7,919 people of one kind in a village that was empty."""
    config = write_starter(folder)
    people = folder / "people.csv"
    header, *rows = people.read_text().splitlines()
    rows += ["N13,f,65+"] * COUNT
    people.write_text("\n".join([f"{header},name", *(f"{row},{LABEL.decode()}" for row in rows)]) + "\n")
    return config


class Watch:
    """Looks at every file below some folders, again and again, and keeps what it should not have found."""

    def __init__(self, *folders: Path) -> None:
        self.folders, self.files, self.found = folders, set[Path](), set[str]()

    def look(self) -> None:
        walked = (Path(below, name) for top in self.folders for below, _, names in os.walk(top) for name in names)
        for path in walked:
            try:
                if not stat.S_ISREG(path.lstat().st_mode):
                    continue
                content = path.read_bytes()
            except OSError:
                continue  # it is gone already
            self.files.add(path)
            if LABEL in content or LABEL in os.fsencode(path):
                self.found.add(f"the label in {path.name}")
            if path.suffix in TEXT and SHOWN.search(DIGEST.sub(b"", content)):
                self.found.add(f"the count in {path.name}")


@pytest.fixture
def temporary() -> Iterator[str]:
    """A folder for temporary files, with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


@pytest.mark.parametrize("runner", ["in-memory", pytest.param("multi-process", marks=pytest.mark.slow)])
def test_they_stay_where_they_are(runner: str, tmp_path: Path, temporary: str) -> None:
    config = planted(tmp_path / "input")
    for name in ("home", "out"):
        (tmp_path / name).mkdir(mode=0o700)
    out = tmp_path / "out"
    program = [sys.executable, "-c", "import das.cli; das.cli.main()"]
    # Without a testing key: noise is secret, so that no published number is the canary by design.
    command = [*program, "run", str(config), "--out", str(out), "--", f"--runner={runner}"]
    places = {"TMPDIR": temporary, "XDG_STATE_HOME": str(tmp_path / "home")}
    watch = Watch(Path(temporary), tmp_path / "home", out / "release")
    with subprocess.Popen(command, env=os.environ | places, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None:
            watch.look()
            time.sleep(0.05)
        said = process.communicate()
    watch.look()
    assert process.returncode == 0, said
    assert not any(LABEL in text or SHOWN.search(text) for text in said)
    for name in ("run.json", "run.log"):
        assert not SHOWN.search(DIGEST.sub(b"", (out / name).read_bytes()))
    assert watch.found == set()
    assert out / "release" / "manifest.json" in watch.files
    assert not os.listdir(temporary)  # nothing is left behind


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(f'{{"count": {COUNT}}}')
    (tmp_path / "b.parquet").write_bytes(b"PAR1" + LABEL)
    watch = Watch(tmp_path)
    watch.look()
    assert watch.found == {"the count in a.json", "the label in b.parquet"}
