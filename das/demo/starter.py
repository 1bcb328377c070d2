"""Files that a newcomer starts from: the demo's population, and small examples to copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from das.demo import generate
from das.errors import Problem, UsageError
from das.plan import presets
from das.storage.files import make_private
from das.storage.layout import make_root
from das.storage.staging import Staging, committed

__all__ = ["STARTERS", "Starter", "write_demo", "write_starter"]

STARTER = """\
# A tiny country in three levels; copy this file and point it at your own.
# `das check` says what does not fit, `das plan` shows the noise, `das run` makes the release.
# A path is relative to this file. A key that does not exist is an error, with the nearest one that does.

[release]
name = "example"                # stands in the statement and in the ledger

[privacy]                       # who is protected, and how much may be learnt
framework = "pure"              # "pure": epsilon and discrete Laplace; "zcdp": rho and discrete Gaussian
epsilon = "2"                   # exact fractions in quotes: "1/2", not 0.5
unit = "person"
neighbours = "replace"
# The smaller epsilon is, the larger is the noise, and the less can be learnt about one person. `das plan` shows both.
# "replace": one person's record takes other values, and the number of people is no secret. "add-remove": it is one.

[input]                         # the records: one row each, or counts (see `histograms` in docs/configuration.md)
data = "generated"              # these are about nobody; delete this line when you point the file at real records
microdata = "people.csv"
geocode = "village"
# `geocode` is the column with the smallest place. Columns `sex` and `age` have the names of the attributes below; where
# yours differ, write: columns = { sex = "SEX_CODE" } and values = { sex = { "1" = "m", "2" = "f" } }

[geography]                     # public; lists every place, the empty ones too
crosswalk = "places.csv"        # one row per village; a blank means that the branch skips the level
levels = [{ name = "province" }, { name = "district" }, { name = "village" }]
# From top to bottom; each name is a column of the file. Areas that cut across the levels are unions of villages:
# areas = [{ name = "catchment", file = "catchments.csv" }], a file with columns area and geocode.

[[schema.attribute]]            # what is counted: each attribute with all its labels, in order
name = "sex"
labels = ["f", "m"]

[[schema.attribute]]
name = "age"
labels = ["0-14", "15-24", "25-64", "65+"]
recodes.grown = { child = ["0-14"], adult = ["15-24", "25-64", "65+"] }
# A recode groups labels under a name of its own, here `grown`, which queries can use.

[strategy.geolevels]            # shares of the budget per level; they sum to one
province = "1/4"
district = "1/4"
village = "1/2"

[strategy.queries.all]          # and per query within a level; a table of a level's own name takes precedence
total = "1/4"
"sex * grown" = "1/4"
detailed = "1/2"
# `total` is the number of people, `detailed` every combination of labels. Each becomes a table of each level.
# Totals of provinces are exact (below): a table [strategy.queries.province] without `total` leaves more to others.

[[invariant]]                   # published exactly, and why
query = "total"
level = "province"
reason = "Seats in parliament follow the provinces' populations"
# Nothing hides an exact number, and each one weakens what is promised. Delete this part if no law asks for it.
"""

PL94 = """\
# Redistricting counts of a small generated state: the schema, the queries and the budget of the 2020 Census.
# `das plan` shows the noise, `das run` makes the release. To use it for your state, replace the files that it names.

[release]
name = "state"
product = "Redistricting counts"

[privacy]                       # the budget of the 2020 production run for persons
framework = "zcdp"              # rho, and discrete Gaussian noise
rho = "293764/114921"
delta = "1/10000000000"         # epsilon is stated at this delta
unit = "person"
neighbours = "replace"

[input]
data = "generated"              # these are about nobody; delete this line when you point the file at real records
microdata = "persons.csv"       # one row per person: GEOID and the attributes of the preset, by label
geocode = "GEOID"
dataset = "state"               # whose budget is spent, as the ledger calls it

[geography]                     # every block, empty ones too; the code of a block holds those of its parents
units = "geography.csv"
column = "GEOID"
levels = [
    { name = "state", width = 2 },
    { name = "county", width = 3 },
    { name = "tract", width = 6 },
    { name = "block_group", width = 1 },
    { name = "block", width = 3 },
]
areas = [                       # unions of blocks that are not on the spine; they cost nothing
    { name = "place", file = "places.csv" },
    { name = "district", file = "districts.csv" },
]

[schema]
preset = "pl94-2020"            # group quarters, voting age, hispanic, race: 2,016 cells

[strategy]
preset = "pl94-2020"            # the queries of each level and their shares

[strategy.geolevels]            # shares of production without the nation, so that they sum to one
state = "1440/3995"
county = "447/3995"
tract = "687/3995"
block_group = "1256/3995"
block = "165/3995"

[[invariant]]
query = "total"
level = "state"
reason = "Apportionment: state populations are published exactly"

[[bound]]                       # facilities.csv has the number of facilities of each type, by block
query = "hhgq"
level = "block"
sense = ">="
source = "facilities.csv"
geocode = "GEOID"
reason = "At least one person lives in each group-quarters facility"

[[bound]]
query = "hhgq"
level = "block"
sense = "<="
source = "facilities.csv"
geocode = "GEOID"
factor = 99999
missing = "zero"                # a block that the file does not list has no group quarters
reason = "Nobody lives in a kind of group quarters that the block does not have"

[output]
tables = ["total", "hhgq", "votingage", "hispanic * cenrace"]
"""

ONE_TABLE = """\
# One table whose margins are published exactly; copy this file and point it at your own.
# `das table plan` compares the mechanisms and spends nothing, `das table` makes the release.

name = "sex by age"             # stands in the statement and in the ledger

[input]
file = "town.csv"               # .csv, .csv.gz or .parquet; relative to this file
count = "people"                # each row is a cell with its count; without this key each row is a record
dataset = "town"                # whose budget is spent, as the ledger calls it
total = "3"                     # all that may ever be spent on these people; the first release fixes it
data = "generated"              # these are about nobody; delete this line when you point the file at real people

[columns]                       # every label, in the order of the released table
sex = ["f", "m"]
age = ["0-17", "18-64", "65+"]

[privacy]
epsilon = "1"                   # given the public totals; exact fractions in quotes: "1/2", not 0.5

[mechanism]
name = "k-norm"                 # or "gaussian" (with delta, or rho) or "conditioning": `das table plan` compares them

[[invariant]]                   # a published margin; nothing hides it, and its counts are taken from the file
columns = ["sex"]

[[invariant]]                   # delete one of the two if only the other is published
columns = ["age"]
"""

TOWN = """\
sex,age,people
f,0-17,31
f,18-64,88
f,65+,24
m,0-17,35
m,18-64,79
m,65+,9
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """What ``das init --like NAME`` writes: files, by a function that returns the config, and what to type next."""

    files: tuple[str, ...]
    write: Callable[[Path], str]
    following: str = "das check {config} && das run {config} --out {out}"


def write_starter(folder: Path, like: str = "small-country") -> Path:
    """Write a config and what it reads, of one of ``STARTERS``; return the config's path."""
    if like not in STARTERS:
        raise UsageError(Problem("--like", f"{like!r} is not a starter", f"say {' or '.join(STARTERS)}"))
    starter = STARTERS[like]
    folder.mkdir(parents=True, exist_ok=True)
    taken = [name for name in ("config.toml", *starter.files) if (folder / name).exists()]
    if taken:
        raise UsageError(Problem(str(folder / taken[0]), "is already there", "name another folder"))
    (folder / "config.toml").write_text(starter.write(folder))
    return folder / "config.toml"


def _small_country(folder: Path) -> str:
    people = ["village,sex,age"]
    for village, households in HOUSEHOLDS.items():
        for number in range(households):
            members = [("f", "25-64"), ("m", "25-64" if number % 3 else "65+")]
            members += [("f" if number % 2 else "m", "0-14")] * (number % 4) + [("f", "15-24")] * (number % 2)
            people += [f"{village},{sex},{age}" for sex, age in members]
    (folder / "places.csv").write_text(PLACES)
    (folder / "people.csv").write_text("\n".join(people) + "\n")
    return STARTER


def _pl94(folder: Path) -> str:
    generate(blocks=400, people=12_000).write(folder, "csv")
    return PL94


def _one_table(folder: Path) -> str:
    (folder / "town.csv").write_text(TOWN)
    return ONE_TABLE


STARTERS = {
    "small-country": Starter(files=("places.csv", "people.csv"), write=_small_country),
    "pl94": Starter(
        files=("persons.csv", "geography.csv", "facilities.csv", "places.csv", "districts.csv"), write=_pl94
    ),
    "one-table": Starter(
        files=("town.csv",), write=_one_table, following="das table plan {config} && das table {config} --out {out}"
    ),
}
"""Examples by name; the first is the tutorial's."""


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
