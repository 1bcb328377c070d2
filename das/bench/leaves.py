"""Many leaves in a tiny schema: CPU time and memory of each command, so that what grows with the geography shows.

One attribute of two labels, one query a level: the work on a geounit is as small as it can be. What is left is what the
program does for each geounit outside of the mathematics: reading geography and counts, cutting, writing, verifying.
Each command runs in a process of its own, so that a peak is that of the command.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from das.bench.process_tree import ProcessTree

__all__ = ["rows", "write_leaves"]

LEAVES = 100_000
FAN_OUT = 40
"""Blocks of a tract, and tracts of a county."""
AT_ONCE = 1 << 17
NAME = "leaves.toml"
MAIN = "from das.cli import main; main()"
GENERATE = """\
import sys
from pathlib import Path
from das.bench.leaves import write_leaves
write_leaves(Path(sys.argv[1]), int(sys.argv[2]))
"""
COMMANDS = ("check", "plan", "tabulate", "measure", "estimate", "publish", "run")

CONFIG = """\
[release]
name = "leaves"

[privacy]
framework = "zcdp"
rho = "1"

[input]
data = "generated"
histograms = "counts.parquet"

[geography]
units = "blocks.parquet"
levels = [{ name = "nation", width = 1 }, { name = "county", width = 5 }, { name = "tract", width = 2 }, { name = "block", width = 2 }]

[[schema.attribute]]
name = "sex"
labels = ["f", "m"]

[strategy.geolevels]
nation = "1/4"
county = "1/4"
tract = "1/4"
block = "1/4"

[strategy.queries.all]
sex = "1"

[output]
microdata = false
intervals = false
"""  # noqa: E501


def write_leaves(folder: Path, leaves: int) -> Path:
    """Write geography, counts and config of that many leaves, a piece at a time; return the config.

    Examples
    --------
    >>> with TemporaryDirectory() as folder:
    ...     config = write_leaves(Path(folder), 100)
    ...     pq.read_table(Path(folder) / "counts.parquet").slice(99).to_pylist()
    [{'geocode': '1000000219', 'sex': 'm', 'count': 3}]
    """
    text = [("geocode", pa.string())]
    units, counts = pa.schema(text), pa.schema([*text, ("sex", pa.string()), ("count", pa.int64())])
    with (
        pq.ParquetWriter(folder / "blocks.parquet", units) as geography,
        pq.ParquetWriter(folder / "counts.parquet", counts) as input_file,
    ):
        for start in range(0, leaves, AT_ONCE):
            leaf = np.arange(start, min(start + AT_ONCE, leaves))
            tract = leaf // FAN_OUT
            number = (tract // FAN_OUT * 100 + tract % FAN_OUT) * 100 + leaf % FAN_OUT
            codes = pa.array((10**9 + number).astype(np.str_))
            geography.write_table(pa.table({"geocode": codes}))
            labels = pa.array(np.where(leaf % 2, "m", "f"))
            input_file.write_table(pa.table({"geocode": codes, "sex": labels, "count": pa.array(leaf % 4)}))
    config = folder / NAME
    config.write_text(CONFIG, encoding="utf-8")
    return config


def rows(*, blocks: int = LEAVES, options: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Run the commands one after the other: what ``das bench leaves --json`` prints.

    Each row has the command, the leaves, CPU seconds of all its processes and the peak resident memory of that process
    of it which has most, in MB. ``run`` does what the commands before it have left to do: the report.
    """
    found = []
    with TemporaryDirectory(prefix="das-bench-leaves-") as folder:
        config, out = Path(folder) / NAME, Path(folder) / "out"
        subprocess.run([sys.executable, "-c", GENERATE, folder, str(blocks)], check=True)  # or its memory would count
        for command in COMMANDS:
            arguments = [sys.executable, "-c", MAIN, command, str(config)]
            if command not in ("check", "plan"):
                arguments += ["--out", str(out), "--testing-key", "das bench leaves"]
                arguments += ["--", *options] if options else []
            with ProcessTree(followed=True) as tree:
                subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            found.append(
                {
                    "leaves": blocks,
                    "command": command,
                    "cpu_seconds": round(tree.cpu_seconds(), 1),
                    "peak_mb": round(tree.take_peak_bytes() / 1e6),
                }
            )
    return found
