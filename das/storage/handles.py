"""Files opened relative to a handle of their folder, so that no symbolic link at or below the folder is followed.

A path is looked up anew each time it is used, and whoever may write one of its folders can put a link there in between.
A handle stays what it was.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

from das.errors import Problem, UsageError

__all__ = ["folder_handle", "open_within", "read_within"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINK_REMEDY = "remove the link, and put the file or folder itself in its place; das follows no link there"


@contextmanager
def folder_handle(folder: Path) -> Iterator[int]:
    """Hold a handle of a folder, which must not be a symbolic link.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as home:
    ...     (Path(home) / "link").symlink_to(home)
    ...     with folder_handle(Path(home) / "link"):
    ...         pass
    Traceback (most recent call last):
    das.errors.UsageError: ...link: is a symbolic link; remove the link, ...
    """
    descriptor = _opened(folder, folder, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_within(folder: Path, name: str | PurePath, flags: int, mode: int = 0o600) -> int:
    """Open a file by its name relative to a folder; neither the folder nor anything below it may be a link.

    Parameters
    ----------
    folder : Path
        The folder from which on no link is followed.
    name : str or PurePath
        The file, relative to it.
    flags, mode : int
        As for :func:`os.open`.

    Returns
    -------
    int
        A descriptor, to be closed by the caller.
    """
    *between, last = PurePath(name).parts
    path, held = folder, _opened(folder, folder, _FOLDER)
    for part in between:
        path /= part
        held = _moved(held, path, part)
    try:
        return _opened(path / last, last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, held)
    finally:
        os.close(held)


def read_within(folder: Path, name: str | PurePath) -> bytes:
    """Read a whole file by its name relative to a folder, following no link.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as home:
    ...     _ = (Path(home) / "salt").write_bytes(b"abc")
    ...     read_within(Path(home), "salt")
    b'abc'
    """
    with os.fdopen(open_within(folder, name, os.O_RDONLY), "rb") as file:
        return file.read()


def _moved(held: int, path: Path, part: str) -> int:
    """Go one folder down: a handle of it in place of its parent's."""
    try:
        return _opened(path, part, _FOLDER, 0, held)
    finally:
        os.close(held)


def _opened(path: Path, name: str | Path, flags: int, mode: int = 0, within: int | None = None) -> int:
    try:
        return os.open(name, flags, mode, dir_fd=within)
    except OSError as error:
        # The kernel says ENOTDIR where a folder was asked for and a link found.
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and path.is_symlink():
            raise UsageError(Problem(str(path), "is a symbolic link", _LINK_REMEDY)) from None
        error.filename = str(path)
        raise
