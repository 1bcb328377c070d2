"""A tiny country that tests change one thing at a time."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w
from hypothesis import HealthCheck, settings

from das.noise import RunKey, Streams
from das.plan.geography import spine_of
from das.plan.load import load
from das.plan.plan import Plan
from geography import Spine

# A busy machine is no defect: examples may take as long as they take.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

UNITS = ("01001", "01002", "02001", "02003", "11001")

CONFIG: dict[str, Any] = {
    "release": {"name": "tiny"},
    "privacy": {"framework": "zcdp", "rho": "1/2"},
    "input": {"data": "generated", "microdata": "people.csv"},
    "geography": {
        "units": "units.csv",
        "levels": [{"name": "state", "width": 1}, {"name": "county", "width": 1}, {"name": "block", "width": 3}],
    },
    "schema": {
        "attribute": [
            {"name": "sex", "labels": ["f", "m"]},
            {
                "name": "age",
                "labels": ["0-17", "18-64", "65+"],
                "recodes": {"grown": {"minor": ["0-17"], "adult": ["18-64", "65+"]}},
            },
        ],
        "structural_zero": [{"name": "no old men", "labels": {"sex": "m", "age": "65+"}}],
    },
    "strategy": {
        "geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"},
        "queries": {"all": {"total": "1/4", "sex * grown": "1/4", "detailed": "1/2"}},
    },
}


class Country:
    """A folder with a config and a geography."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file("units.csv", "geocode\n" + "\n".join(UNITS) + "\n")

    def config(self, **sections: Any) -> dict[str, Any]:
        """Give a copy of the config; a section given here takes the place of its own, None removes it."""
        content = copy.deepcopy(CONFIG) | copy.deepcopy(sections)
        return {name: section for name, section in content.items() if section is not None}

    def write(self, content: Mapping[str, Any] | str, name: str = "config.toml") -> Path:
        return self.file(name, content if isinstance(content, str) else tomli_w.dumps(content))

    def plan(self, **sections: Any) -> Plan:
        return load(self.write(self.config(**sections)))

    def spine(self, **sections: Any) -> Spine:
        return spine_of(self.plan(**sections))

    def file(self, name: str, content: str | bytes | pa.Table) -> Path:
        path = self.folder / name
        if isinstance(content, pa.Table):
            pq.write_table(content, path)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


@pytest.fixture
def country(tmp_path: Path) -> Country:
    return Country(tmp_path)


TOWN = """
name = "town"
[input]
file = "town.csv"
count = "people"
dataset = "town"
total = "TOTAL"
data = "generated"
[columns]
sex = ["f", "m"]
[privacy]
epsilon = "1"
[mechanism]
name = "k-norm"
"""


@pytest.fixture(scope="session")
def table_of_a_town() -> Callable[..., Path]:
    """Write two counts and the config of their release as a table; the config is returned."""

    def write(folder: Path, *, total: int) -> Path:
        (folder / "town.csv").write_text("sex,people\nf,8\nm,9\n")
        (folder / "town.toml").write_text(TOWN.replace("TOTAL", str(total)))
        return folder / "town.toml"

    return write


@pytest.fixture(scope="session")
def streams() -> Streams:
    return RunKey.for_testing("tests of das.noise").streams(b"context")


DATA = Path(__file__).parent / "data"
STATE_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "ri_2010_blocks.csv.gz"


@pytest.fixture(scope="session")
def vectors() -> Callable[..., list[dict[str, Any]]]:
    """Give the test vectors of the names asked for; a name that has none fails the test."""
    content = json.loads((DATA / "vectors" / "semidp.json").read_text(encoding="utf-8"))

    def named(*names: str) -> list[dict[str, Any]]:
        assert set(names) <= {vector["name"] for vector in content}
        return [vector for vector in content if vector["name"] in names]

    return named


@pytest.fixture(scope="session")
def rhode_island(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a copy of the 2010 block counts of Rhode Island, the only data of the tests that lie outside the repository.

    A run leaves a witness of its ledger beside its input, by which the next session's run would be refused.
    """
    if not STATE_DATA.exists():
        pytest.skip("the Rhode Island data are not in the repository: needs ../shared/data/ri_2010_blocks.csv.gz")
    return Path(shutil.copy(STATE_DATA, tmp_path_factory.mktemp("rhode-island")))


@pytest.fixture
def unconfined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the stages after the wall in this process and without it, so that a test can plant a fault in them."""

    from pipelines.far_side import FarSide
    from pipelines.public_stages import PublicWork, run_public_stages
    from pipelines.wall.confinement import Confinement, Wall

    class Here(FarSide):
        def run(self, work: PublicWork, confinement: Confinement, **watching: Any) -> None:
            run_public_stages(work, confinement, **watching)

    monkeypatch.setattr(FarSide, "opened", lambda _: nullcontext(Here(None)))
    monkeypatch.setattr(Confinement, "enforce", lambda _: Wall("landlock", 7))


@pytest.fixture(scope="session")
def private_networks() -> None:
    """Skip where the kernel itself, asked without das, allows a user no network of their own."""
    ask = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x50000000) != 0)"
    if subprocess.run([sys.executable, "-I", "-S", "-c", ask]).returncode:
        pytest.skip("the kernel does not allow user and network namespaces")
