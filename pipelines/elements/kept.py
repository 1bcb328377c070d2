"""Elements that a step remembers on disk, so that a stage that was interrupted need not work them out again.

A step's draws and sums are functions of its input and of the stage's key, so what was complete is as good as new. The
folder lies in a partial folder and goes when the stage is committed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any
from uuid import uuid4

from das.storage.files import write_atomically
from das.storage.staging import SCRATCH
from pipelines.elements.arrays import Arrays

__all__ = ["KeptElements", "keeping", "recall", "remember", "remembered"]

Keyed = tuple[int, Arrays]

TOGETHER = 64
"""Elements that are written to one file: what an interruption costs at most, in each worker."""
TOGETHER_BYTES = 4 << 20
_HEAD = struct.Struct("<qqq")
_ENTRY = struct.Struct("<qq")


def remembered(partial: Path, name: str, work_out: Callable[[], Iterable[Keyed]]) -> Iterator[Keyed]:
    """Yield the elements that were kept under a name, or work them out, keep and yield them.

    They lie in a file until the stage ends, and travel as its name.
    """
    found = recall(partial, name)
    yield from remember(partial, name, list(work_out())) if found is None else found


def recall(partial: Path, name: str) -> list[Keyed] | None:
    """Return the elements that were kept under a name; None if there are none."""
    path = partial / SCRATCH / name
    return list(_listed(path)) if path.exists() else None


def remember(partial: Path, name: str, found: Sequence[Keyed]) -> list[Keyed]:
    """Keep elements under a name; return them as elements that lie there."""
    path = partial / SCRATCH / name
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = [(key, arrays.to_bytes()) for key, arrays in found]
    write_atomically(path, b"".join(_ENTRY.pack(key, len(data)) + data for key, data in encoded))
    kept, at = [], 0
    for (key, arrays), (_, data) in zip(found, encoded, strict=True):
        at += _ENTRY.size
        kept.append((key, Arrays.in_file(path, at, len(data), arrays)))
        at += len(data)
    return kept


def _listed(path: Path) -> Iterator[Keyed]:
    """The elements of a file, which are read when they are looked at."""
    with path.open("rb") as file:
        while entry := file.read(_ENTRY.size):
            key, length = _ENTRY.unpack(entry)
            yield key, Arrays.in_file(path, file.tell(), length)
            file.seek(length, 1)


class KeptElements:
    """Results of a step by the key of its input, some to a file; a result is one element.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = KeptElements(Path(folder) / "up")
    ...     kept.add(3, (7, Arrays({})))
    ...     kept.write()
    ...     KeptElements(Path(folder) / "up").find(3), kept.find(4)
    ((7, Arrays()), None)
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._new: list[bytes] = []
        self._where: dict[int, tuple[Path, int, int, int]] = {}
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if not path.name.startswith("."):
                self._where |= _index(path)

    def find(self, key: int) -> Keyed | None:
        """Return what an earlier run kept."""
        if key not in self._where:
            return None
        path, made, at, length = self._where[key]
        with path.open("rb") as file:
            file.seek(at)
            return made, Arrays.from_bytes(file.read(length))

    def add(self, key: int, result: Keyed) -> None:
        """Keep a result; it is written when some have come together."""
        data = result[1].to_bytes()
        self._new.append(_HEAD.pack(key, result[0], len(data)) + data)
        if len(self._new) >= TOGETHER or sum(map(len, self._new)) >= TOGETHER_BYTES:
            self.write()

    def write(self) -> None:
        """Write what has come together."""
        if self._new:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._folder / uuid4().hex, b"".join(self._new))
            self._new = []


def _index(path: Path) -> dict[int, tuple[Path, int, int, int]]:
    """Where the results of a file lie, by the key of their input."""
    found = {}
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            key, made, length = _HEAD.unpack(head)
            found[key] = (path, made, file.tell(), length)
            file.seek(length, 1)
    return found


def keeping(process: Callable[[Any, Any], Iterator[Keyed]]) -> Callable[[Any, Any], Iterator[Keyed]]:
    """Let a step that yields one element for each keep it: the step has ``kept``, some KeptElements or None."""

    @wraps(process)
    def with_memory(self: Any, element: Any) -> Iterator[Keyed]:
        kept: KeptElements | None = self.kept
        found = kept.find(element[0]) if kept is not None else None
        if found is None:
            (found,) = process(self, element)
            if kept is not None:
                kept.add(element[0], found)
        yield found

    return with_memory
