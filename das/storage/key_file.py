"""The run key as a file in the confidential folder: written once, read by each worker into locked memory, destroyed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from das.errors import BudgetError, Problem, UsageError
from das.noise.locked_memory import LockedMemory
from das.noise.stream import RunKey
from das.storage.files import secure_delete, unfinished, write_atomically
from das.storage.handles import open_within

__all__ = ["destroy_key", "read_key", "write_key"]


def write_key(path: Path, key: RunKey) -> None:
    """Make the key durable, from its locked memory straight to the file."""
    with key.memory.view() as secret:
        write_atomically(path, secret)


def read_key(path: Path) -> RunKey:
    """Read the key, from the file straight to locked memory.

    Raises
    ------
    UsageError
        The file is a link, has a second name, belongs to another user, or is open to others.
    BudgetError
        It is damaged.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path, key = Path(folder) / "run.key", RunKey.generate()
    ...     write_key(path, key)
    ...     read_key(path) == key
    True
    """
    with os.fdopen(open_within(path.parent, path.name, os.O_RDONLY), "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        alone = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid()
        if not alone or found.st_mode & 0o077:
            reason = "is not a file of this user alone: it has another owner, a second name, or is open to others"
            raise UsageError(Problem(str(path), reason, "run the same command again, which says which it is"))
        if found.st_size != RunKey.SIZE:
            reason = f"the run's key is damaged: it has {found.st_size} bytes, not {RunKey.SIZE}"
            remedy = "restore it, or begin again in another folder; what this run was charged stays charged"
            raise BudgetError(Problem(str(path), reason, remedy))  # other noise would be a second measurement
        memory = LockedMemory(RunKey.SIZE)
        with memory.view() as view:
            file.readinto(view)
    return RunKey(memory)


def destroy_key(path: Path) -> None:
    """Overwrite and remove the key, and what killed writers of it left."""
    for each in (path, *unfinished(path)):
        secure_delete(each)
