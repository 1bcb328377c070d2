"""A real state for the benchmark of accuracy: block counts that a person has, with production's shares of the levels.

The file is a table of blocks with a column GEOID of fifteen digits, ``pop_GROUP`` and ``vap_GROUP``: people, and people
of voting age, of groups that exclude each other. The compilation alarm-redist/census-2020 has such files of published
counts for every state. The counts are taken for the truth; nothing of them ships with the project.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from das.errors import InputError, Problem

__all__ = ["PRODUCTION_QUERIES", "config_text", "groups_of", "read_blocks", "write_world"]

PRODUCTION_QUERIES = {"total": "1/5", "votingage": "1/10", "race": "1/5", "detailed": "1/2"}
CONFIG = """\
[release]
name = "{name}"

[privacy]
framework = "zcdp"
rho = "293764/114921"
delta = "1/10000000000"

[input]
data = "public"
histograms = "{file}"
geocode = "GEOID"
ledger = "ledger.sqlite"
{cells}
[geography]
units = "{file}"
column = "GEOID"
levels = [
    {{ name = "state", width = 2 }}, {{ name = "county", width = 3 }}, {{ name = "tract", width = 6 }},
    {{ name = "block_group", width = 1 }}, {{ name = "block", width = 3 }},
]

[[schema.attribute]]
name = "votingage"
labels = ["0-17", "18+"]

[[schema.attribute]]
name = "race"
labels = [{groups}]

[strategy.geolevels]
state = "1440/3995"
county = "447/3995"
tract = "687/3995"
block_group = "1256/3995"
block = "165/3995"

[strategy.queries.all]
{queries}

[[invariant]]
query = "total"
level = "state"
reason = "Apportionment"
{output}"""
CELLS = """
[[input.cell]]
column = "vap_{group}"
labels = {{ votingage = "18+", race = "{group}" }}

[[input.cell]]
column = "pop_{group}"
minus = "vap_{group}"
labels = {{ votingage = "0-17", race = "{group}" }}
"""


def read_blocks(path: Path) -> pd.DataFrame:
    """Read the block counts.

    Raises
    ------
    InputError
        It is not such a table.
    """
    try:
        blocks = pd.read_csv(path, dtype={"GEOID": str})
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise InputError(Problem(str(path), f"cannot be read as CSV ({error})", "give block counts")) from error
    if "GEOID" not in blocks or len(groups_of(blocks)) < 2 or not (blocks["GEOID"].str.len() == 15).all():
        reason = "has no GEOID of fifteen digits, or no two groups with columns pop_GROUP and vap_GROUP"
        raise InputError(Problem(str(path), reason, "give a table of blocks such as alarm-redist/census-2020 has"))
    return blocks


def groups_of(blocks: pd.DataFrame) -> list[str]:
    """Groups that have both columns.

    Examples
    --------
    >>> groups_of(pd.DataFrame(columns=["GEOID", "pop", "pop_white", "vap_white", "pop_other"]))
    ['white']
    """
    names = [name.removeprefix("pop_") for name in blocks.columns if name.startswith("pop_")]
    return [name for name in names if f"vap_{name}" in blocks.columns]


def write_world(folder: Path, blocks: pd.DataFrame, queries: dict[str, str]) -> Path:
    """Write counts and config into a folder; return the config's path."""
    blocks.to_csv(folder / "blocks.csv", index=False)
    path = folder / "real-geography.toml"
    path.write_text(config_text("blocks.csv", groups_of(blocks), queries))
    return path


def config_text(
    file: str,
    groups: Iterable[str],
    queries: Mapping[str, str] = PRODUCTION_QUERIES,
    *,
    name: str = "real-geography",
    tables: Iterable[str] = (),
) -> str:
    """Return the config of a state: block counts in `file`, the same shares of the queries at every level.

    Examples
    --------
    >>> config_text("blocks.csv", ["a"], {"detailed": "1"}, tables=["total"])[-29:]
    '\\n[output]\\ntables = ["total"]\\n'
    """
    named = list(groups)
    listed = ", ".join(f'"{table}"' for table in tables)
    return CONFIG.format(
        name=name,
        file=file,
        cells="".join(CELLS.format(group=group) for group in named),
        groups=", ".join(f'"{group}"' for group in named),
        queries="\n".join(f'{query} = "{share}"' for query, share in queries.items()),
        output=f"\n[output]\ntables = [{listed}]\n" if listed else "",
    )
