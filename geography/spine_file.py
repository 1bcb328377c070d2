"""Arrays in a file that processes map into their memory: what they do not look at is never read.

The file is Arrow's IPC format, not compressed: a batch of one row for each array. All processes of a machine share the
pages of it that any of them has looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["map_parts", "write_parts"]

_SCHEMA = pa.schema([("name", pa.string()), ("type", pa.string()), ("data", pa.large_binary())])
_LEVELS = b"levels"


def write_parts(file: BinaryIO, levels: Sequence[str], parts: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays and the names of the levels.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a"
    ...     with path.open("wb") as file:
    ...         write_parts(file, ["x"], {"codes": np.array(["a", "bc"])})
    ...     levels, parts = map_parts(path)
    >>> levels, parts["codes"].tolist(), parts["codes"].flags.writeable
    (['x'], ['a', 'bc'], False)
    """
    schema = _SCHEMA.with_metadata({_LEVELS: json.dumps(list(levels)).encode()})
    with pa.ipc.new_file(file, schema) as writer:
        for name, array in parts.items():
            content = np.ascontiguousarray(array)
            ends = pa.py_buffer(np.array([0, content.nbytes], dtype=np.int64))
            data = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(content.view(np.uint8).data)])
            kind = pa.array([content.dtype.str], pa.string())
            writer.write_batch(pa.record_batch([pa.array([name], pa.string()), kind, data], schema=schema))


def map_parts(path: Path) -> tuple[list[str], dict[str, NDArray[Any]]]:
    """Map the arrays; they are read-only, and each is as long as it was."""
    file = pa.ipc.open_file(pa.memory_map(str(path), "r"))
    parts: dict[str, NDArray[Any]] = {}
    for at in range(file.num_record_batches):
        batch = file.get_batch(at)
        name, kind = (batch.column(column)[0].as_py() for column in (0, 1))
        parts[name] = np.frombuffer(batch.column(2).buffers()[2], dtype=np.dtype(kind))
    return json.loads(file.schema.metadata[_LEVELS]), parts
