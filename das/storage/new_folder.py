"""The folder of a release that is made in one go: new, made before anything is charged, gone again after a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from das.errors import Problem, UsageError
from das.storage.permissions import make_new

__all__ = ["new_folder", "require_new"]


def require_new(out: Path) -> None:
    """Refuse a folder that holds something."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(Problem(str(out), "is not an empty folder", "name a new folder with --out"))


@contextmanager
def new_folder(*folders: Path, private: bool) -> Iterator[None]:
    """Make folders, the outer one first; if the block fails, those that are empty are removed again.

    A folder that cannot be made must not cost anything, so it is made before the charge; what was written stays.
    """
    made: list[Path] = []
    try:
        for folder in folders:
            make_new(folder, private=private)
            made.append(folder)
        yield
    except BaseException:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        raise
