"""Who may enter the folder of a run: checked, and mended or refused, at the start of every stage.

Modes are mended, because a wrong mode is a mistake that has a right answer. A link, another owner, or a parent folder
that others may write has none: whoever made it may read what is written next, so the stage is refused.

The owners of the parent folders are trusted, as the administrator is: they can rename whatever lies in them.
"""

from __future__ import annotations

import grp
import logging
import os
import pwd
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from das.errors import Problem, UsageError
from das.storage.handles import folder_handle, open_within
from das.storage.layout import Layout

__all__ = ["make_new", "secure"]

PRIVATE, PUBLIC = 0o700, 0o755
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LOG = logging.getLogger("das.storage")


def secure(layout: Layout, *, unprotected: bool = False) -> list[str]:
    """Make sure that nobody but this user can reach what is confidential in a run's folder.

    Parameters
    ----------
    layout : Layout
        The folder of the run, which must exist; what is not in it yet is passed over.
    unprotected : bool
        Whether the noise of the run can be removed by whoever guesses its key: then the release is as confidential as
        the records.

    Returns
    -------
    list of str
        What others could reach and cannot now, one line each: somebody may have been there. So it is logged as a
        warning and kept in ``run.log``. A wrong mode inside a closed folder is mended without a word.

    Raises
    ------
    UsageError
        With every problem that has no right answer: a symbolic link, a second hard link, another owner, or a parent
        folder that others may write.
    """
    check = _Check()
    for parent in layout.root.resolve().parents:
        check.parent(parent)
    check.refuse_problems()  # nothing below is trusted, nor touched
    public = PRIVATE if unprotected else PUBLIC
    with folder_handle(layout.root) as root:
        check.folder(root, layout.root, public)
        check.refuse_problems()
        check.entry(root, layout.run, public)
        check.entry(root, layout.log, PRIVATE)
        check.entry(root, layout.confidential.path, PRIVATE, below=True)
        check.entry(root, layout.release.path, public, below=unprotected)
    check.refuse_problems()
    if check.mended:
        more = f" (and {len(check.mended) - 1} more, which run.log lists)" if len(check.mended) > 1 else ""
        _LOG.warning("%s%s", check.mended[0], more)
        _record(layout, check.mended)
    return check.mended


def make_new(folder: Path, *, private: bool, empty: bool = True) -> None:
    """Make a folder of this user for one release; one that is there is taken if it is this user's and empty.

    Parameters
    ----------
    folder : Path
        Its parents must exist, and nobody else may be able to put another folder in its place.
    private : bool
        Whether nobody else may enter it.
    empty : bool
        Whether it must hold nothing yet.

    Raises
    ------
    UsageError
        It cannot be made, is a link, belongs to another user, holds something, or lies where others may write.
    """
    check = _Check()
    try:
        above = folder.absolute().parent.resolve(strict=True)
        for parent in (above, *above.parents):
            check.parent(parent)
        check.refuse_problems()
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        with folder_handle(folder) as handle:
            if check.is_own(folder, os.fstat(handle)):
                if empty and os.listdir(handle):
                    raise UsageError(Problem(str(folder), "is not an empty folder", "name a new folder with --out"))
                os.fchmod(handle, PRIVATE if private else PUBLIC)
        check.refuse_problems()
    except OSError as error:
        reason = f"cannot be made ({error.strerror})"
        raise UsageError(Problem(str(folder), reason, "name another folder, in one that exists")) from None


class _Check:
    """Collects what is wrong, and what was."""

    def __init__(self) -> None:
        self.user = os.geteuid()
        self.problems: list[Problem] = []
        self.mended: list[str] = []

    def refuse_problems(self) -> None:
        if self.problems:
            raise UsageError(self.problems)

    def parent(self, path: Path) -> None:
        """Refuse a folder in which others may rename what lies on the way to the run."""
        found = path.stat()
        open_to = found.st_mode & _OTHERS_MAY_WRITE
        if open_to == stat.S_IWGRP and _is_own_group(found.st_gid, self.user):
            return
        if open_to and not found.st_mode & stat.S_ISVTX:
            reason = f"others may write it (mode {_octal(found)}), and so put another folder in the place of the run's"
            self._refuse(path, reason, f"run `chmod go-w {path}`, or name another folder with --out")

    def folder(self, handle: int, path: Path, limit: int) -> None:
        """Check a folder by its handle, and take away what its mode allows beyond the limit."""
        found = os.fstat(handle)
        if self.is_own(path, found) and found.st_mode & 0o077 & ~limit:
            os.fchmod(handle, stat.S_IMODE(found.st_mode) & limit)
            self._mended(path, found)

    def entry(self, within: int, path: Path, limit: int, *, below: bool = False, reached: bool = True) -> None:
        """Check a file or folder by its name within a folder; ``below`` says whether all that it holds is checked, too.

        A folder comes before what it holds. So whatever has its mode changed lies in a folder of this user, and is
        still what was looked at. ``reached`` says whether others could come as far as the folder.
        """
        try:
            found = os.stat(path.name, dir_fd=within, follow_symlinks=False)
        except FileNotFoundError:
            return
        if not self.is_own(path, found):
            return
        if found.st_mode & 0o077 & ~limit:
            os.chmod(path.name, stat.S_IMODE(found.st_mode) & limit, dir_fd=within)
            if reached:
                self._mended(path, found)
        if below and stat.S_ISDIR(found.st_mode):
            entered = reached and bool(found.st_mode & 0o077)
            with folder_handle(path) as handle:
                for name in sorted(os.listdir(handle)):
                    self.entry(handle, path / name, limit, below=True, reached=entered)

    def is_own(self, path: Path, found: os.stat_result) -> bool:
        """Whether it is a file or folder of this user under one name; otherwise the problem is noted."""
        if stat.S_ISLNK(found.st_mode):
            self._refuse(path, "is a symbolic link", "remove it, and put the file or folder itself in its place")
        elif found.st_uid != self.user:
            self._refuse(path, "belongs to another user", "name a new folder with --out")
        elif stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            remedy = f"find the other with `find / -xdev -inum {found.st_ino}` and remove it, or name a new folder"
            self._refuse(path, "has a second name (a hard link), under which it can be read and changed", remedy)
        elif not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or stat.S_ISSOCK(found.st_mode)):
            self._refuse(path, "is neither a file nor a folder", "remove it")
        else:
            return True
        return False

    def _refuse(self, path: Path, reason: str, remedy: str) -> None:
        self.problems.append(Problem(str(path), reason, remedy))

    def _mended(self, path: Path, found: os.stat_result) -> None:
        self.mended.append(f"{path}: was open to others (mode {_octal(found)}), and is closed now")


def _record(layout: Layout, lines: list[str]) -> None:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    descriptor = open_within(layout.root, layout.log.name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with os.fdopen(descriptor, "a") as log:
        log.writelines(f"{now} {line}\n" for line in lines)


def _is_own_group(group: int, user: int) -> bool:
    """Whether a group is the private one of this user, as many systems make for everybody: same name, nobody else."""
    try:
        person, entry = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_gid == person.pw_gid and entry.gr_name == person.pw_name and set(entry.gr_mem) <= {person.pw_name}


def _octal(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"
