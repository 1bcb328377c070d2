"""Hostile input, made from a seed: worlds that `das check` accepts, each damaged in one to three ways.

A world is a folder of files by name. Mutations know what they damage: bytes of any file, fields of a CSV file, members
of a gzip file, columns and pages of a Parquet file, keys and values of a config. Canaries stand in the confidential
files, so that a message that quotes a record is recognised.
"""

from __future__ import annotations

import copy
import gzip
import io
import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import tomli_w

from das.demo.starter import HOUSEHOLDS, PLACES, STARTER

CANARY_LABEL, CANARY_PLACE, CANARY_NAME, CANARY_COUNT = "Zqlabel", "Zqplace", "Zqname", "73819264"
CANARIES = ("Zq", CANARY_COUNT)
"""Texts that stand in confidential columns, and in no message."""

Files = dict[str, bytes]
Random = random.Random


@dataclass(frozen=True)
class Case:
    """One hostile world: its seed, what was done to it, and its files; the config is ``config.toml``."""

    seed: int
    story: str
    files: Files

    def write(self, folder: Path) -> Path:
        """Write the files; return the config's path."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return folder / "config.toml"


# -- worlds ------------------------------------------------------------------------------------------------------------

EDGES = """\
geocode,parent,level
N,,province
S,,province
N1,N,district
N2,N,district
S1,S,district
N11,N1,village
N12,N1,village
N13,N1,village
N21,N2,village
N22,N2,village
S11,S1,village
S12,S1,village
S13,S1,village
S90,S,village
"""
AREAS = "area,geocode\ncoast,N11\ncoast,S11\nhills,N21\nhills,N11\n,S90\n"
LEAST = "geocode,f,m\nN11,1,1\nS11,2,0\n"
MOST = "geocode,total\n" + "".join(f"{line.split(',')[2]},100000000\n" for line in PLACES.splitlines()[1:])
VILLAGES = [line.split(",")[2] for line in PLACES.splitlines()[1:]]
BOUND = '\n[[bound]]\nquery = "{query}"\nlevel = "village"\nsense = "{sense}"\nsource = "{source}"\n'


def _people() -> str:
    rows = ["village,sex,age,name"]
    for village, households in HOUSEHOLDS.items():
        for number in range(households):
            for sex, age in (("f", "25-64"), ("m", "65+"), ("f", "0-14"))[: 1 + number % 3]:
                rows.append(f"{village},{sex},{age},{CANARY_NAME}{number}")
    return "\n".join(rows) + "\n"


def _counts() -> str:
    cells = [(sex, age) for sex in ("f", "m") for age in ("0-14", "25-64")]
    rows = [f"{village},{sex},{age},{CANARY_COUNT}" for village in VILLAGES[:5] for sex, age in cells]
    return "village,sex,age,count\n" + "\n".join(rows) + "\n"


def _wide() -> str:
    rows = [f"{village},{CANARY_COUNT},73819,{CANARY_COUNT}" for village in VILLAGES]
    return "village,pop,kids,men\n" + "\n".join(rows) + "\n"


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _table(text: str) -> pa.Table:
    names = text.split("\n", 1)[0].split(",")
    return pa_csv.read_csv(
        io.BytesIO(text.encode()),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        ),
    )


def worlds() -> dict[str, Files]:
    """Worlds that fit together, by name."""
    people, places = _people(), PLACES.encode()
    wide_cells = (
        '\n[[input.cell]]\ncolumn = "pop"\nminus = "kids"\nlabels = { sex = "f", age = "25-64" }\n'
        '\n[[input.cell]]\ncolumn = "kids"\nlabels = { sex = "f", age = "0-14" }\n'
        '\n[[input.cell]]\ncolumn = "men"\nlabels = { sex = "m", age = "25-64" }\n'
    )

    def config(*changes: tuple[str, str], more: str = "") -> bytes:
        text = STARTER
        for old, new in changes:
            text = text.replace(old, new)
        return (text + more).encode()

    def records(name: str) -> tuple[str, str]:
        return '"people.csv"', f'"{name}"'

    edges = ('crosswalk = "places.csv"', 'crosswalk = "edges.csv"\nlayout = "edges"')
    areas = ('crosswalk = "places.csv"', 'crosswalk = "places.csv"\nareas = [{ name = "zone", file = "areas.csv" }]')
    lines = PLACES.splitlines()
    padded = [code for code in (f"{i:03d}" for i in range(100, 109))]
    units = (
        'crosswalk = "places.csv"        # one row per village; a blank means that the branch skips the level\n'
        'levels = [{ name = "province" }, { name = "district" }, { name = "village" }]',
        'units = "units.csv"\nlevels = [{ name = "province", width = 1 }, { name = "district", width = 1 }, '
        '{ name = "village", width = 1 }]',
    )
    coded = people
    for village, code in zip([line.split(",")[2] for line in lines[1:]], padded, strict=True):
        coded = coded.replace(f"{village},", f"{code},")
    bounds = BOUND.format(query="sex", sense=">=", source="least.csv") + BOUND.format(
        query="total", sense="<=", source="most.parquet"
    )
    return {
        "starter": {"config.toml": config(), "places.csv": places, "people.csv": people.encode()},
        "gzip": {
            "config.toml": config(records("people.csv.gz")),
            "places.csv": places,
            "people.csv.gz": gzip.compress(people.encode(), mtime=0),
        },
        "parquet": {
            "config.toml": config(records("people.parquet")),
            "places.csv": places,
            "people.parquet": _parquet(_table(people), row_group_size=7),
        },
        "counts": {
            "config.toml": config(('microdata = "people.csv"', 'histograms = "counts.csv"')),
            "places.csv": places,
            "counts.csv": _counts().encode(),
        },
        "wide counts": {
            "config.toml": config(('microdata = "people.csv"', 'histograms = "wide.csv"'), more=wide_cells),
            "places.csv": places,
            "wide.csv": _wide().encode(),
        },
        "edges": {"config.toml": config(edges), "edges.csv": EDGES.encode(), "people.csv": people.encode()},
        "units": {
            "config.toml": config(units, ('geocode = "village"', 'geocode = "village"')),
            "units.csv": ("geocode\n" + "\n".join(padded) + "\n").encode(),
            "people.csv": coded.encode(),
        },
        "areas and bounds": {
            "config.toml": config(areas, more=bounds),
            "places.csv": places,
            "areas.csv": AREAS.encode(),
            "least.csv": LEAST.encode(),
            "most.parquet": _parquet(_table(MOST)),
            "people.csv": people.encode(),
        },
        "packed geography": {
            "config.toml": config(('"places.csv"', '"places.csv.gz"')),
            "places.csv.gz": gzip.compress(places, mtime=0),
            "people.csv": people.encode(),
        },
        "parquet geography": {
            "config.toml": config(('"places.csv"', '"places.parquet"')),
            "places.parquet": _parquet(_table(PLACES)),
            "people.csv": people.encode(),
        },
    }


# -- bytes -------------------------------------------------------------------------------------------------------------

ODD_BYTES = (
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\x1b[31m",
    b"\r",
    b"\n\n",
    b'"',
    b",",
    b"\xef\xbb\xbf",
    b"\x1a",
)


def bytes_mutated(rng: Random, data: bytes) -> bytes:
    """Damage any file, without knowing what it is."""
    if not data:
        return data
    at = rng.randrange(len(data))
    end = min(len(data), at + rng.choice((1, 3, 17, 200)))
    few = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 30))):
        few[rng.randrange(len(few))] ^= 1 << rng.randrange(8)
    return rng.choice(
        (
            lambda: bytes(few),
            lambda: bytes(few),
            lambda: data[:at],
            lambda: data[at:],
            lambda: data[:at] + data[end:],
            lambda: data[:at] + data[at:end] * 3 + data[end:],
            lambda: data[:at] + rng.randbytes(end - at) + data[end:],
            lambda: data[:at] + bytes(end - at) + data[end:],
            lambda: data[:at] + rng.choice(ODD_BYTES) + data[at:],
            lambda: data + rng.choice((b"garbage", bytes(100), data)),
            lambda: b"" if rng.random() < 0.3 else data[: rng.randrange(12)],
            lambda: data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n"))),
            lambda: data.decode("latin-1").encode(rng.choice(("utf-16", "utf-32", "utf-7"))),
            lambda: data.replace(b"f", "é".encode("latin-1")),
        )
    )()


# -- CSV ---------------------------------------------------------------------------------------------------------------

ODD_FIELDS = (
    "", " ", "\0", "N11\0", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "0", "00", "1e9", "-0", "1.5", "NaN", "inf",
    "null", "None", "9" * 18, "9" * 30, "9" * 5000, "x" * 70_000, '"', '""', '"a', "a,b", "a\nb", "٣", "²", "\u202e",
    "é" * 300, "N11 ", " N11", "N", "N1", "S13", "province", "🏠", "\ufeff", "0x10", "1_000", "true", "999999999999",
)  # fmt: skip


def fields_mutated(rng: Random, text: str, *, confidential: bool) -> str:
    """Damage rows, columns and fields of a CSV text."""
    rows = [line.split(",") for line in text.rstrip("\n").split("\n")]
    row = rng.randrange(len(rows))
    column = rng.randrange(len(rows[0]))
    odd = (*ODD_FIELDS, CANARY_LABEL, CANARY_PLACE, CANARY_COUNT) if confidential else ODD_FIELDS

    def place(value: str) -> None:
        rows[row][min(column, len(rows[row]) - 1)] = value

    def each(change: Callable[[list[str]], object]) -> None:
        for fields in rows:
            change(fields)

    other = rng.randrange(len(rows[0]))

    def swap(fields: list[str]) -> None:
        fields[column], fields[other] = fields[other], fields[column]

    chosen = rng.randrange(14)
    if chosen <= 4:
        place(rng.choice(odd))
    elif chosen == 5:
        rows.insert(row, list(rows[row]))
    elif chosen == 6:
        del rows[row]
    elif chosen == 7:
        each(lambda fields: fields.append(fields[column]))
    elif chosen == 8:
        each(lambda fields: fields.pop(column))
    elif chosen == 9:
        each(swap)
    elif chosen == 10:
        rows[row].append(rng.choice(odd))
    elif chosen == 11:
        rows[row].pop()
    elif chosen == 12:
        value = rng.choice(odd)
        for fields in rows[1:]:
            fields[column] = value
    else:
        rng.shuffle(rows)
    return "\n".join(",".join(fields) for fields in rows) + "\n"


# -- gzip and Parquet --------------------------------------------------------------------------------------------------


def gzip_mutated(rng: Random, data: bytes, *, confidential: bool) -> bytes:
    """Damage the members of a gzip file, or what it holds."""
    text = gzip.decompress(data)
    cut = rng.randrange(len(text))
    return rng.choice(
        (
            lambda: bytes_mutated(rng, data),
            lambda: bytes_mutated(rng, data),
            lambda: data[: rng.randrange(len(data))],
            lambda: data[:-8] + rng.randbytes(8),
            lambda: data + rng.choice((b"garbage", bytes(64), data[:20], data)),
            lambda: gzip.compress(text[:cut], mtime=0) + gzip.compress(text[cut:], mtime=0),
            lambda: gzip.compress(data, mtime=0),
            lambda: text,
            lambda: gzip.compress(text + rng.choice((bytes(1 << 20), b"\n" * (1 << 16), b"x" * (1 << 20))), mtime=0),
            lambda: gzip.compress(bytes(2 << 20), mtime=0),
            lambda: gzip.compress(fields_mutated(rng, text.decode(), confidential=confidential).encode(), mtime=0),
            lambda: gzip.compress(bytes_mutated(rng, text), mtime=0),
        )
    )()


KINDS = (
    pa.int64(), pa.float64(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string()), pa.bool_(),
    pa.null(), pa.list_(pa.string()), pa.struct([("a", pa.string())]), pa.decimal128(20, 2), pa.date32(),
    pa.timestamp("s"), pa.string(),
)  # fmt: skip


def parquet_mutated(rng: Random, data: bytes, *, confidential: bool) -> bytes:
    """Damage columns, values, types or bytes of a Parquet file."""
    if rng.random() < 0.35:
        return bytes_mutated(rng, data)
    try:
        table = pq.read_table(io.BytesIO(data))
        names, position = table.column_names, rng.randrange(max(1, table.num_columns))
    except (pa.ArrowException, OSError, ValueError):
        return bytes_mutated(rng, data)
    if not names:
        return bytes_mutated(rng, data)
    odd = (*ODD_FIELDS, CANARY_LABEL, CANARY_PLACE, CANARY_COUNT) if confidential else ODD_FIELDS
    chosen = rng.randrange(7)
    if chosen == 0:
        kind = rng.choice(KINDS)
        table = table.set_column(position, names[position], pa.nulls(table.num_rows, kind))
    elif chosen == 1:
        values = [rng.choice(odd) if rng.random() < 0.2 else str(value) for value in table.column(position).to_pylist()]
        table = table.set_column(position, names[position], pa.array(values, pa.string()))
    elif chosen == 2:
        numbers = [rng.choice((-1, 0, 2**62, 1, int(CANARY_COUNT))) for _ in range(table.num_rows)]
        table = table.set_column(position, names[position], pa.array(numbers, pa.int64()))
    elif chosen == 3:
        table = table.rename_columns([*names[:-1], names[0]])
    elif chosen == 4:
        table = table.remove_column(position)
    elif chosen == 5:
        table = table.slice(0, rng.choice((0, 1)))
    else:
        broken = pa.Array.from_buffers(
            pa.string(),
            1,
            [None, pa.py_buffer(b"\0\0\0\0\4\0\0\0"), pa.py_buffer(b"\xff\xfeN1")],
        )
        table = pa.table({name: broken for name in names})
    return _parquet(table, row_group_size=rng.choice((1, 5, 1000)), compression=rng.choice(("none", "snappy", "zstd")))


# -- configs -----------------------------------------------------------------------------------------------------------

ODD_VALUES: tuple[Any, ...] = (
    0, 1, -1, 2**63, 10**30, 10**250, 10**4200, True, False, 0.5, float("inf"), float("nan"), "", " ", "x", "\0",
    "a\0b", "=1+1", "..", ".", "/", "*", "**", "a**b", "[", "~", "x" * 5000, "1/0", "1/3", "-1/2", "1e99", "1e-99",
    "1e9999", "0", "²", "٣/٤", "1_0", [], [[]], {}, [1], ["a", "a"], {"a": {"a": {}}}, ["total"], {"total": "1"},
    "total", "detailed", "sex * sex", "sex*age", "province", "village", "edges", "congenial", "level", "zcdp",
    "add-remove", "../config.toml", "no such file.csv",
)  # fmt: skip
RAW = (
    "x = " + "1" * 5000, "x = " + "[" * 3000, "x = " + "{a=" * 2000, "a" + ".a" * 3000 + " = 1", "[[[",
    "x = 1979-05-27", "x = 99:99:99", 'x = "\\ud800"', "x = 0x" + "f" * 5000, "x = 1e5000", "[release]", "x = nan",
    "[input]\n[input]", "\0", "x = '''", "= 1", "x = ", "[privacy.x]", "x = 9999-12-31T23:59:60Z",
    "x = 0b" + "1" * 9000, '"" = 1', "[schema.attribute]", "x = 1\nx = 2", "\ufeff",
)  # fmt: skip


def config_mutated(rng: Random, data: bytes) -> bytes:
    """Damage a config: its text, or the tree of its keys and values."""
    text = data.decode()
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    chosen = rng.randrange(10)
    if chosen == 0:
        return bytes_mutated(rng, data)
    if chosen == 1:
        return "\n".join([*lines[:at], rng.choice(RAW), *lines[at:]]).encode("utf-8", "surrogatepass")
    if chosen == 2:
        return "\n".join(lines[:at] + lines[at + 1 :]).encode()
    if chosen == 3:
        return "\n".join([*lines[:at], lines[at], *lines[at:]]).encode()
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError):
        return bytes_mutated(rng, data)
    for _ in range(rng.choice((1, 1, 2))):
        holder, key = rng.choice(_places(content) or [(content, "x")])
        odd = copy.deepcopy(rng.choice(ODD_VALUES))
        act = rng.randrange(4)
        if act == 0 and key in (holder if isinstance(holder, dict) else range(len(holder))):
            del holder[key]
        elif act == 1 and isinstance(holder, dict):
            holder[rng.choice(("x", f"{key}x", "", "a.b", "k" * 3000))] = odd
        else:
            holder[key] = odd
    return tomli_w.dumps(content).encode("utf-8", "surrogatepass")


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Every place of a tree where a value stands: its holder and its key or position."""
    found: list[tuple[Any, Any]] = []
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        found.append((content, key))
        if isinstance(value, dict | list):
            found += _places(value)
    return found


# -- all together ------------------------------------------------------------------------------------------------------

WORLDS = worlds()
CONFIDENTIAL = ("people", "counts", "wide")


def make(seed: int) -> Case:
    """Make the hostile world of a seed."""
    rng = Random(seed)
    world = rng.choice(sorted(WORLDS))
    files = dict(WORLDS[world])
    story = [world]
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        name = "config.toml" if rng.random() < 0.15 else rng.choice(sorted(files))
        files[name] = _mutated(rng, name, files[name])
        story.append(name)
    return Case(seed, " > ".join(story), files)


def _mutated(rng: Random, name: str, data: bytes) -> bytes:
    confidential = name.startswith(CONFIDENTIAL)
    if name == "config.toml":
        try:
            return config_mutated(rng, data)
        except (UnicodeDecodeError, ValueError, TypeError, RecursionError):
            return bytes_mutated(rng, data)
    if rng.random() < 0.25:
        return bytes_mutated(rng, data)
    try:
        if name.endswith(".gz"):
            return gzip_mutated(rng, data, confidential=confidential)
        if name.endswith(".parquet"):
            return parquet_mutated(rng, data, confidential=confidential)
        return fields_mutated(rng, data.decode(), confidential=confidential).encode()
    except (UnicodeDecodeError, IndexError, ValueError, OSError, EOFError, gzip.zlib.error):
        return bytes_mutated(rng, data)  # damaged before: what it was can no longer be told
