"""Scripts are called from anywhere: a path is relative to whoever typed it, not to the checkout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
STUB = '#!/bin/sh\necho "$0 in $PWD: $@" >> "{log}"\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of which only the scripts are real; the others write down how they were called."""
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name in ("cluster", "spark", "flink", "demo"):
        shutil.copy(SCRIPTS / name, folder / "scripts" / name)
    for stub in (folder / "scripts" / "setup", *(folder / ".venv" / "bin" / name for name in ("das", "python"))):
        stub.write_text(STUB.format(log=tmp_path / "log"))
        stub.chmod(0o755)
    return folder


def called(checkout: Path, tmp_path: Path, *words: str) -> str:
    """How das was called by a script that somebody typed in another folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(["bash", checkout / "scripts" / words[0], *words[1:]], cwd=elsewhere, check=True)
    (line,) = [each for each in (tmp_path / "log").read_text().splitlines() if "/das in" in each]
    return line


@pytest.mark.parametrize("cluster", ["flink", "spark"])
def test_a_run_on_a_cluster(cluster: str, checkout: Path, tmp_path: Path) -> None:
    line = called(checkout, tmp_path, cluster, "run", "c.toml", "--out", "out")
    assert line.endswith(f"in {tmp_path}/elsewhere: run c.toml --out out -- --runner={cluster}")


def test_the_demo(checkout: Path, tmp_path: Path) -> None:
    assert called(checkout, tmp_path, "demo", "out").endswith(f"demo --out {tmp_path}/elsewhere/out")
