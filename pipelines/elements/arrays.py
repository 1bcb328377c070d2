"""The Beam elements: named arrays with a coder of their own, never pickled object graphs.

A family is one parent with its children. Its key is the parent's position in the level above; its arrays are the
children's measurements, limits or counts.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from das.schema.counts import ProtectedCounts, TrueCounts

__all__ = ["Arrays", "ArraysCoder", "Counts", "Join", "Joined", "sparse_arrays", "sparse_counts"]

_IN_FILE = b"\xff\xff"
"""How an element begins that lies in a file; as a number of arrays this would be more than there are."""


class Arrays:
    """Named arrays that travel between workers; the text form shows names and shapes, never a value.

    Arrays that lie in a file travel as its name, and are read where they are looked at. A runner may hold all elements
    that wait between two steps in one process; so what it holds of them is small.
    """

    __slots__ = ("_held", "_where")

    def __init__(self, named: Mapping[str, NDArray[np.generic]]) -> None:
        self._held: dict[str, NDArray[np.generic]] | None
        self._held = {name: np.ascontiguousarray(array) for name, array in named.items()}
        self._where: tuple[Path, int, int] | None = None

    @classmethod
    def in_file(cls, path: Path, at: int, length: int, held: Arrays | None = None) -> Arrays:
        """Arrays whose bytes lie in a file for as long as they travel; ``held`` are the same, if they are at hand."""
        arrays = cls({})
        arrays._held, arrays._where = (None if held is None else held._held), (path, at, length)
        return arrays

    @property
    def _named(self) -> dict[str, NDArray[np.generic]]:
        if self._held is None and self._where is not None:
            path, at, length = self._where
            with path.open("rb") as file:
                file.seek(at)
                self._held = Arrays.from_bytes(file.read(length))._held
        return self._held or {}

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        return self._named[name]

    def __contains__(self, name: str) -> bool:
        return name in self._named

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def with_array(self, name: str, array: NDArray[np.generic]) -> Arrays:
        """Return the same with one array more."""
        return Arrays({**self._named, name: array})

    def with_arrays(self, others: Arrays) -> Arrays:
        """Return the same with others added."""
        return Arrays({**self._named, **others._named})

    def __repr__(self) -> str:
        return "Arrays(" + ", ".join(f"{name}{list(array.shape)}" for name, array in self._named.items()) + ")"

    def to_bytes(self) -> bytes:
        """Names, types, shapes and raw little-endian data."""
        out = [struct.pack("<H", len(self._named))]
        for name, array in self._named.items():
            label, kind = name.encode(), array.dtype.str.encode()
            out.append(struct.pack("<BBB", len(label), len(kind), array.ndim) + label + kind)
            out.append(struct.pack(f"<{array.ndim}q", *array.shape))
            out.append(array.tobytes())
        return b"".join(out)

    @classmethod
    def from_bytes(cls, data: bytes) -> Arrays:
        """Inverse of :meth:`to_bytes`; the arrays are read-only views of the bytes."""
        (count,), at = struct.unpack_from("<H", data), 2
        named = {}
        for _ in range(count):
            label, kind, ndim = struct.unpack_from("<BBB", data, at)
            at += 3
            name, dtype = data[at : at + label].decode(), np.dtype(data[at + label : at + label + kind].decode())
            at += label + kind
            shape = struct.unpack_from(f"<{ndim}q", data, at)
            at += 8 * ndim
            size = int(np.prod(shape, dtype=np.int64))
            named[name] = np.frombuffer(data, dtype=dtype, count=size, offset=at).reshape(shape)
            at += size * dtype.itemsize
        return cls(named)


class ArraysCoder(beam.coders.Coder):
    """Raw bytes, the same for the same arrays; or the name of the file that holds them."""

    def encode(self, value: Arrays) -> bytes:
        """Write the arrays, or where they lie."""
        if value._where is None:
            return value.to_bytes()
        path, at, length = value._where
        return _IN_FILE + struct.pack("<qq", at, length) + bytes(path)

    def decode(self, encoded: bytes) -> Arrays:
        """Read the arrays, or where they lie."""
        if not encoded.startswith(_IN_FILE):
            return Arrays.from_bytes(encoded)
        at, length = struct.unpack_from("<qq", encoded, len(_IN_FILE))
        return Arrays.in_file(Path(os.fsdecode(encoded[len(_IN_FILE) + 16 :])), at, length)

    def is_deterministic(self) -> bool:
        """Equal arrays give equal bytes."""
        return True


beam.coders.registry.register_coder(Arrays, ArraysCoder)

Joined = tuple[int, dict[str, Iterable[Arrays]]]
"""A key, and what was joined under it by the names of where it came from."""


class Join(beam.PTransform):
    """Bring together what several collections hold for each key.

    Beam's own CoGroupByKey forgets what it was given, and its workers then pickle elements to learn their size.
    """

    def expand(self, named: Mapping[str, beam.PCollection[tuple[int, Arrays]]]) -> beam.PCollection[Joined]:
        """Name each collection's elements, and group them all."""
        tagged = [
            found | f"name {name}" >> beam.Map(_tag, name).with_output_types(tuple[int, tuple[str, Arrays]])
            for name, found in named.items()
        ]
        together = tagged | beam.Flatten() | beam.GroupByKey()
        return together | beam.Map(_by_name, tuple(named)).with_output_types(Joined)


def _tag(element: tuple[int, Arrays], name: str) -> tuple[int, tuple[str, Arrays]]:
    return element[0], (name, element[1])


def _by_name(element: tuple[int, Iterable[tuple[str, Arrays]]], names: tuple[str, ...]) -> Joined:
    found: dict[str, list[Arrays]] = {name: [] for name in names}
    for name, arrays in element[1]:
        found[name].append(arrays)
    return element[0], {name: found[name] for name in names}


Counts = TypeVar("Counts", TrueCounts, ProtectedCounts)


def sparse_arrays(counts: TrueCounts | ProtectedCounts) -> Arrays:
    """Sparse counts as an element."""
    return Arrays({"unit": counts.unit, "cell": counts.cell, "count": counts.count})


def sparse_counts(kind: type[Counts], arrays: Arrays) -> Counts:
    """Sparse counts from an element; which kind travels is known where the pipeline is built."""
    return kind(*(np.asarray(arrays[name], dtype=np.int64) for name in ("unit", "cell", "count")))
