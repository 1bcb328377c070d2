"""Files that a newcomer starts from: the demo's population, and a tiny country to copy."""

from __future__ import annotations

from pathlib import Path

from das.demo import generate
from das.errors import Problem, UsageError
from das.plan import presets
from das.storage.files import make_private
from das.storage.layout import make_root
from das.storage.staging import Staging, committed

__all__ = ["write_demo", "write_starter"]

STARTER = """\
# A tiny country in three levels; copy this file and point it at your own.
# `das check` says what does not fit, `das plan` shows the noise, `das run` makes the release.

[release]
name = "example"

[privacy]                       # who is protected, and how much may be learnt
framework = "pure"              # "pure": epsilon and discrete Laplace; "zcdp": rho and discrete Gaussian
epsilon = "2"                   # exact fractions in quotes: "1/2", not 0.5
unit = "person"
neighbours = "replace"

[input]                         # the records: one row each, or counts (see `histograms` in docs/configuration.md)
data = "generated"              # these are about nobody; delete this line when you point the file at real records
microdata = "people.csv"
geocode = "village"

[geography]                     # public; lists every place, the empty ones too
crosswalk = "places.csv"        # one row per village; a blank means that the branch skips the level
levels = [{ name = "province" }, { name = "district" }, { name = "village" }]

[[schema.attribute]]
name = "sex"
labels = ["f", "m"]

[[schema.attribute]]
name = "age"
labels = ["0-14", "15-24", "25-64", "65+"]
recodes.grown = { child = ["0-14"], adult = ["15-24", "25-64", "65+"] }

[strategy.geolevels]            # shares of the budget per level; they sum to one
province = "1/4"
district = "1/4"
village = "1/2"

[strategy.queries.all]          # and per query within a level; a table of a level's own name takes precedence
total = "1/4"
"sex * grown" = "1/4"
detailed = "1/2"

[[invariant]]                   # published exactly, and why
query = "total"
level = "province"
reason = "Seats in parliament follow the provinces' populations"
"""

PLACES = """\
province,district,village
N,N1,N11
N,N1,N12
N,N1,N13
N,N2,N21
N,N2,N22
S,S1,S11
S,S1,S12
S,S1,S13
S,,S90
"""

HOUSEHOLDS = {"N11": 9, "N12": 4, "N21": 6, "N22": 3, "S11": 12, "S12": 5, "S90": 2}
"""Villages N13 and S13 are empty, and are measured like all others."""


def write_starter(folder: Path) -> Path:
    """Write config, population and crosswalk of a tiny country; return the config's path."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = [name for name in ("config.toml", "places.csv", "people.csv") if (folder / name).exists()]
    if taken:
        raise UsageError(Problem(str(folder / taken[0]), "is already there", "name another folder"))
    people = ["village,sex,age"]
    for village, households in HOUSEHOLDS.items():
        for number in range(households):
            members = [("f", "25-64"), ("m", "25-64" if number % 3 else "65+")]
            members += [("f" if number % 2 else "m", "0-14")] * (number % 4) + [("f", "15-24")] * (number % 2)
            people += [f"{village},{sex},{age}" for sex, age in members]
    (folder / "places.csv").write_text(PLACES)
    (folder / "people.csv").write_text("\n".join(people) + "\n")
    (folder / "config.toml").write_text(STARTER)
    return folder / "config.toml"


def write_demo(out: Path, *, blocks: int, people: int) -> Path:
    """Write the demo's population into the confidential side of ``out``, once; return the config's path."""
    folder = out / "confidential" / "input"
    size = {"blocks": blocks, "people": people}
    written = committed(folder)
    if written is not None:
        if {name: written[name] for name in size} != size:
            other = f"holds a demo of {written['blocks']} blocks and {written['people']} people"
            raise UsageError(Problem(str(out), other, "ask for the same, or name another folder with --out"))
        return folder / "demo.toml"
    make_root(out)
    if set(out.iterdir()) - {out / "confidential"}:
        raise UsageError(Problem(str(out), "is not empty", "name another folder with --out, or remove it"))
    make_private(out / "confidential")
    with Staging(folder) as staging:
        generate(**size).write(staging.partial)
        staging.write("demo.toml", (presets.folder() / "demo.toml").read_bytes())
        staging.commit(size)
    return folder / "demo.toml"
