"""How a level is cut into shards, one file each: whole families, the same on every runner, so that bytes agree."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from geography import Spine

__all__ = ["Shard", "families", "parquet_bytes", "parquet_of_row_groups", "read_parquet", "shards_of"]

NUMBERS_PER_SHARD = 500_000
"""About 4 MB of 64-bit numbers: the most that one worker holds at a time; small, so that workers finish together."""

MOST_SHARDS = 4096
"""About so many shards of a level at most; those of a nation hold more numbers each."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A contiguous run of a level's geounits, made of whole families.

    Examples
    --------
    >>> Shard("block", 0, 1, 0, 40).path(Path("measurements")).as_posix()
    'measurements/block.parquet'
    >>> Shard("block", 1, 3, 40, 90).path(Path("measurements")).as_posix()
    'measurements/block.parquet/part-00001-of-00003.parquet'
    """

    level: str
    index: int
    of: int
    start: int
    stop: int

    def path(self, folder: Path) -> Path:
        """The shard's file: ``<level>.parquet``, or a file in a folder of that name if the level has several shards."""
        whole = folder / f"{self.level}.parquet"
        return whole if self.of == 1 else whole / f"part-{self.index:05d}-of-{self.of:05d}.parquet"

    def pieces(self, numbers_per_unit: int) -> Iterator[tuple[int, int]]:
        """Yield runs of geounits that hold at most ``NUMBERS_PER_SHARD`` numbers each, across families.

        Examples
        --------
        >>> list(Shard("block", 0, 1, 0, 5).pieces(NUMBERS_PER_SHARD // 2))
        [(0, 2), (2, 4), (4, 5)]
        """
        step = max(1, NUMBERS_PER_SHARD // max(1, numbers_per_unit))
        for start in range(self.start, self.stop, step):
            yield start, min(start + step, self.stop)


def families(spine: Spine, level: str) -> NDArray[np.int64]:
    """Offsets that cut a level into families; the top level is one family."""
    position = spine.levels.index(level)
    if position == 0:
        return np.array([0, spine.size(level)], dtype=np.int64)
    return spine.first_child(spine.levels[position - 1])


def shards_of(spine: Spine, level: str, numbers_per_unit: int) -> list[Shard]:
    """Cut a level into shards of whole families.

    A shard has more than ``NUMBERS_PER_SHARD`` numbers only if it is a single family, or if the level would have more
    than ``MOST_SHARDS`` of them otherwise: a nation has thousands of files, not hundreds of thousands.
    """
    offsets = families(spine, level)
    limit = max(1, NUMBERS_PER_SHARD // max(1, numbers_per_unit), -(-spine.size(level) // MOST_SHARDS))
    cuts = [0]
    while cuts[-1] < offsets[-1]:
        after = int(np.searchsorted(offsets, cuts[-1], side="right"))  # the end of the next family
        last = int(np.searchsorted(offsets, cuts[-1] + limit, side="right")) - 1
        cuts.append(int(offsets[max(after, last)]))
    of = len(cuts) - 1
    return [Shard(level, i, of, cuts[i], cuts[i + 1]) for i in range(of)]


def parquet_bytes(table: pa.Table, *, with_dictionary: Sequence[str] | None = None) -> bytes:
    """Write a table as Parquet in memory; the same table gives the same bytes.

    ``with_dictionary`` names the columns whose values recur; for others a dictionary costs time and room. None: all.
    """
    sink = io.BytesIO()
    dictionary = True if with_dictionary is None else list(with_dictionary)
    pq.write_table(table, sink, compression="zstd", write_statistics=False, use_dictionary=dictionary)
    return sink.getvalue()


def read_parquet(source: Path | pa.BufferReader, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one file of a shard; Arrow's data sets and threads would take longer than the file itself.

    Examples
    --------
    >>> content = parquet_bytes(pa.table({"cell": [4, 2], "count": [1, 3]}))
    >>> read_parquet(pa.BufferReader(content), ["count"]).to_pydict()
    {'count': [1, 3]}
    """
    with pq.ParquetFile(source) as file:
        return file.read(columns=None if columns is None else list(columns), use_threads=False)


def parquet_of_row_groups(tables: Iterable[pa.Table]) -> bytes:
    """Write tables one after the other as the row groups of one file, so that only one of them is held at a time.

    Examples
    --------
    >>> one = pa.table({"count": [1, 2]})
    >>> pq.ParquetFile(io.BytesIO(parquet_of_row_groups([one, one]))).num_row_groups
    2
    """
    sink, writer = io.BytesIO(), None
    for table in tables:
        writer = writer or pq.ParquetWriter(sink, table.schema, compression="zstd", write_statistics=False)
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    if writer is None:
        raise ValueError("a file needs at least one table")
    writer.close()
    return sink.getvalue()
