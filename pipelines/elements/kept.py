"""Elements that a step remembers on disk, so that a stage that was interrupted need not work them out again.

A step's draws and sums are functions of its input and of the stage's key, so what was complete is as good as new. The
folder lies in the stage's partial folder and goes when the stage is committed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from das.storage.files import write_atomically
from das.storage.staging import SCRATCH
from pipelines.elements.arrays import Arrays

__all__ = ["remembered"]

Keyed = tuple[int, Arrays]


def remembered(partial: Path, name: str, work_out: Callable[[], Iterable[Keyed]]) -> Iterator[Keyed]:
    """Yield the elements that were kept under a name, or work them out, keep and yield them."""
    path = partial / SCRATCH / name
    if path.exists():
        yield from _read(path.read_bytes())
        return
    found = list(work_out())
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = [(key, arrays.to_bytes()) for key, arrays in found]
    write_atomically(path, b"".join(struct.pack("<qq", key, len(data)) + data for key, data in encoded))
    yield from found


def _read(content: bytes) -> Iterator[Keyed]:
    at = 0
    while at < len(content):
        key, length = struct.unpack_from("<qq", content, at)
        at += 16
        yield key, Arrays.from_bytes(content[at : at + length])
        at += length
