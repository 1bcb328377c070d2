"""Staging: a stage's folder appears when all its files are complete, and not before.

Outputs are written into a hidden sibling `.<name>.partial`, listed with their hashes in `_committed.json`, and then the
folder is renamed to its name: if it exists, the stage is done. What a killed run leaves behind has another name. The
next run clears it, or, if it does the same from the same things, keeps the files that are complete.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Self

from das.errors import Interrupted, Problem, UsageError
from das.storage.files import (
    WRITING,
    Content,
    fsync,
    full_disk_interrupts,
    make_private,
    sha256_file,
    write_atomically,
)
from das.storage.handles import read_within

__all__ = ["RECORD", "SCRATCH", "Staging", "committed", "verify"]

RECORD = "_committed.json"
"""The file in a committed folder that lists the others."""
BEGUN = "_begun.json"
"""The file in a partial folder that says from what it is made; it goes when the folder is committed."""
SCRATCH = "_scratch"
"""A folder in a partial folder for what only the stage itself reads again; it goes, too."""


class Staging:
    """Collects a stage's outputs and makes them appear at once, under `folder`, when `commit` is called.

    Worker processes write into `partial` with `write_atomically`; a retried bundle may write the same file again.
    Leaving the context without a commit, by an error or not, removes what was written, unless there is a key and the
    work was interrupted. Only one run may stage a folder at a time: an advisory lock on `partial` ends with the last
    process that holds it.

    Parameters
    ----------
    folder : Path
        What will appear. It must not exist yet, or be empty; its parent must exist.
    mode : int
        Permissions of the folder and its subfolders once committed, whatever the umask; files get the same without
        execution. Private unless you say 0o755, and never more than the folder around it has: what is staged in a
        folder of mode 0700 is private. Until then everything is private, whoever writes it.
    key : str, optional
        A digest of all that decides the files. Complete files that an interrupted run with the same key left are kept,
        and whoever writes into `partial` need not write them again. It must tell nothing about confidential files.

    Examples
    --------
    >>> import tempfile
    >>> home = tempfile.TemporaryDirectory()
    >>> folder = Path(home.name) / "measurements"
    >>> with Staging(folder) as staging:
    ...     staging.write("county.parquet", b"...")
    ...     record = staging.commit({"stage": "measure"})
    >>> committed(folder)["stage"], sorted(committed(folder)["files"]), verify(folder)
    ('measure', ['county.parquet'], [])
    >>> home.cleanup()
    """

    def __init__(self, folder: Path, *, mode: int = 0o700, key: str | None = None) -> None:
        self.folder = folder
        self.mode = mode
        self.key = key
        self.partial = folder.with_name(f".{folder.name}.partial")
        self._lock = -1

    def __enter__(self) -> Self:
        with full_disk_interrupts(self.folder):
            self._lock = self._locked()
            continues = False
            try:
                if self.folder.is_symlink() or (self.folder.exists() and not _is_empty_folder(self.folder)):
                    raise UsageError(Problem(str(self.folder), "it is already there", "choose another or move it away"))
                continues = self._continues()
                make_private(self.partial)
                self.mode = 0o700 | (self.mode & self.folder.parent.stat().st_mode)
                if continues:
                    _remove_unfinished(self.partial)
                else:
                    self.clear()
                    if self.key is not None:
                        write_atomically(self.partial / BEGUN, json.dumps(self.key).encode())
            except BaseException:
                if continues:
                    self._unlock()  # what is kept stays for the next try
                else:
                    self._let_go()
                raise
        return self

    def clear(self) -> None:
        """Remove everything that was written, to begin again."""
        for leftover in self.partial.iterdir():
            _remove(leftover)

    def begin_again(self) -> None:
        """Remove all outputs, but not what the stage keeps for itself."""
        for leftover in self.partial.iterdir():
            if leftover.name not in (BEGUN, SCRATCH):
                _remove(leftover)

    def _continues(self) -> bool:
        """Whether an interrupted run of this user left files here that were made from the same things."""
        found = os.fstat(self._lock)
        if self.key is None or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
            return False
        try:
            return bool(json.loads(read_within(self.partial, BEGUN)) == self.key)
        except (OSError, ValueError, UsageError):
            return False

    def write(self, name: str, content: Content) -> None:
        """Write one file by its name relative to the folder, making subfolders as needed."""
        if not _is_file_name(name):
            raise ValueError(f"{name!r} must be a relative name within the folder, and not {RECORD}")
        with full_disk_interrupts(self.folder):
            (self.partial / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.partial / name, content)

    def commit(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Make the folder appear, complete; returns its record: `extra`, and each file's sha256 and bytes."""
        if self._lock < 0:
            raise ValueError(f"{self.folder} is committed once, within its context")
        if "files" in extra:
            raise ValueError("extra must not have the key 'files'")
        with full_disk_interrupts(self.folder):
            files = {}
            for name in _file_names(self.partial):
                if name == BEGUN or name.startswith(f"{SCRATCH}/"):
                    continue
                self._open_as_wanted(self.partial / name)
                files[name] = _fingerprint(self.partial / name)
            record = {**extra, "files": files}
            text = json.dumps(record, sort_keys=True, indent=1) + "\n"
            write_atomically(self.partial / RECORD, text.encode())
            self._open_as_wanted(self.partial / RECORD)
            # From here on nothing is written, so a full disk no longer costs what is kept.
            for beside in filter(os.path.lexists, (self.partial / BEGUN, self.partial / SCRATCH)):
                _remove(beside)
            for below, _, names in os.walk(self.partial, topdown=False):
                for name in filter(_is_unfinished, names):  # left by a worker that was killed and retried
                    Path(below, name).unlink(missing_ok=True)
                os.chmod(below, self.mode)
                fsync(Path(below))
            os.rename(self.partial, self.folder)
            os.close(self._lock)
            self._lock = -1
            fsync(self.folder.parent)
        return record

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        told = _as_interruption(error, self.folder)
        if self._lock >= 0:
            if self.key is not None and isinstance(told, Interrupted | KeyboardInterrupt):
                self._unlock()
            else:
                self._let_go()
        if isinstance(told, OSError | Interrupted) and isinstance(error, OSError):
            raise told

    def _open_as_wanted(self, file: Path) -> None:
        """Set the mode of a complete file; until here it is private, and not every writer is ours."""
        os.chmod(file, self.mode & 0o666)
        fsync(file)

    def _let_go(self) -> None:
        with suppress(OSError):
            _remove(self.partial)
        self._unlock()

    def _unlock(self) -> None:
        os.close(self._lock)
        self._lock = -1

    def _locked(self) -> int:
        while True:
            self.partial.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self.partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), self.partial.lstat()):
                    return descriptor
            except BlockingIOError as error:
                os.close(descriptor)
                remedy = "wait until it and its worker processes have ended, then run the same command again"
                raise UsageError(Problem(str(self.folder), "another run is writing it", remedy)) from error
            except FileNotFoundError:
                pass
            except OSError:
                return descriptor  # a file system without locks; the rename is atomic all the same
            os.close(descriptor)  # the last holder has just renamed or removed what we locked: try again


def _as_interruption(error: BaseException | None, folder: Path) -> BaseException | None:
    """Return the error, or what is told instead of it: a disk without room is an interruption."""
    try:
        with full_disk_interrupts(folder):
            if isinstance(error, OSError):
                raise error
    except (OSError, Interrupted) as told:
        return told
    return error


def committed(folder: Path) -> dict[str, Any] | None:
    """Return the record of a committed folder, or None if the stage did not happen; UsageError if it is damaged."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        record = None
    if not _is_record(record):
        remedy = "restore the folder from a copy; as it is, it cannot be taken for complete"
        raise UsageError(Problem(str(folder / RECORD), "it is damaged", remedy))
    return dict(record)


def verify(folder: Path, known: Mapping[str, str | int] | None = None) -> list[Problem]:
    """Hash every file again and compare with the record; no problem means that the folder is what was committed.

    ``known`` are the sha256 of files, by their names in the folder, that were hashed just now.
    """
    known = known or {}
    try:
        record = committed(folder)
        found = set(_file_names(folder))
    except UsageError as error:
        return list(error.problems)
    if record is None:
        return [Problem(str(folder), f"it has no {RECORD}: the stage did not happen", "run it")]
    problems = []
    for name in sorted(found | set(record["files"])):
        if name not in record["files"]:
            problems.append(Problem(str(folder / name), "it came after the folder was committed", "move it away"))
        elif name not in found:
            problems.append(Problem(str(folder / name), "it is missing", "restore it from a copy"))
        elif record["files"][name]["sha256"] != (known.get(name) or sha256_file(folder / name)):
            problems.append(Problem(str(folder / name), "its contents have changed", "restore it from a copy"))
    return problems


def _fingerprint(path: Path) -> dict[str, int | str]:
    return {"bytes": path.stat().st_size, "sha256": sha256_file(path)}


def _file_names(folder: Path) -> Iterator[str]:
    """Yield the relative names of the finished files below but the record, in order."""
    for path in sorted(folder.rglob("*")):
        kind = path.lstat().st_mode
        if not stat.S_ISDIR(kind) and not stat.S_ISREG(kind):
            raise UsageError(Problem(str(path), "it is neither a file nor a folder", "put a file in its place"))
        if stat.S_ISREG(kind) and not _is_unfinished(path.name) and path != folder / RECORD:
            yield path.relative_to(folder).as_posix()


def _is_unfinished(name: str) -> bool:
    return name.startswith(".") and name.endswith(WRITING)


def _is_file_name(name: str) -> bool:
    parts = PurePosixPath(name).parts
    relative = "/".join(parts) == name and not name.startswith("/") and ".." not in parts
    return relative and name not in ("", RECORD) and not _is_unfinished(parts[-1])


def _is_record(record: object) -> bool:
    if not isinstance(record, dict) or not isinstance(record.get("files"), dict):
        return False
    return all(
        _is_file_name(name)
        and isinstance(file, dict)
        and file.keys() == {"bytes", "sha256"}
        and type(file["bytes"]) is int
        and re.fullmatch("[0-9a-f]{64}", str(file["sha256"]))
        for name, file in record["files"].items()
    )


def _remove_unfinished(folder: Path) -> None:
    """Keep complete files and their folders; remove what a killed writer left, reports of errors, and links."""
    for below, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(below, name)
            kind = path.lstat().st_mode
            complete = stat.S_ISREG(kind) and path.suffix != ".json" and name != "room" and not _is_unfinished(name)
            complete |= path == folder / BEGUN
            if not stat.S_ISDIR(kind) and not complete:
                path.unlink()


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
