"""Single files and folders: atomic writes, hashes, permissions, secure deletion; a full disk is an interruption."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from das.errors import Interrupted, Problem, UsageError
from das.storage.handles import folder_handle, open_within

__all__ = [
    "WRITING",
    "Content",
    "commitment",
    "exclusive_lock",
    "fsync",
    "full_disk_interrupts",
    "json_bytes",
    "make_private",
    "make_public",
    "secure_delete",
    "sha256_file",
    "unfinished",
    "write_atomically",
]

WRITING = ".writing"
"""The suffix of a file that is not complete yet."""

Content = bytes | memoryview | Callable[[BinaryIO], object]


def write_atomically(path: Path, content: Content, *, mode: int = 0o600) -> None:
    """Write a file so that `path` holds all of it or is not there, also after a power cut, whatever the umask.

    Several processes may write the same path at once; one of their contents stays, whole. The file is never open to
    more people than its folder: in a folder of mode 0700 it gets 0600, whatever was asked for.

    Parameters
    ----------
    path : Path
        Its folder must exist, and must not be a symbolic link.
    content : bytes, memoryview or callable
        The bytes, or a function that writes them into the binary file that it is given.
    mode : int
        The file's permissions, at most.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a", lambda file: file.write(b"abc"))
    ...     sha256_file(Path(folder) / "a")[:8]
    'ba7816bf'
    """
    temporary = f".{path.name}.{secrets.token_hex(8)}{WRITING}"
    with full_disk_interrupts(path.parent), folder_handle(path.parent) as folder:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), mode & os.fstat(folder).st_mode & 0o666)
                if callable(content):
                    content(file)
                else:
                    _write_all(file.fileno(), content)  # past Python's buffer, which would keep a copy of a key
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        os.fsync(folder)


def _write_all(descriptor: int, content: bytes | memoryview) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def sha256_file(path: Path) -> str:
    """Return the sha256 of a file's contents, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_private(folder: Path) -> None:
    """Make `folder` (which may exist) so that only this user can enter it: mode 0700 whatever the umask."""
    _make(folder, 0o700)


def make_public(folder: Path) -> None:
    """Make `folder` (which may exist) so that everybody can read it: mode 0755 whatever the umask."""
    _make(folder, 0o755)


def secure_delete(path: Path) -> None:
    """Overwrite a file with random bytes, flush, and unlink it; a file that does not exist is not an error.

    On a disk that writes in place this destroys the contents. It promises nothing about copies that the machine made on
    its own: a solid-state drive's or a copy-on-write or journalling file system's old blocks, snapshots, backups,
    swap. Where those matter, keep the folder on an encrypted or in-memory file system.

    A file that has a second name (a hard link) is unlinked and not overwritten: to overwrite it would destroy what may
    be somebody else's, and would hide that a copy was kept.

    Raises
    ------
    UsageError
        The file had a second name, so that its contents are still there; or it is a symbolic link.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     key = Path(folder) / "run.key"
    ...     write_atomically(key, b"secret")
    ...     secure_delete(key)
    ...     key.exists()
    False
    """
    if not path.parent.exists():
        return
    with folder_handle(path.parent) as folder:
        try:
            descriptor = open_within(path.parent, path.name, os.O_WRONLY)
        except FileNotFoundError:
            return
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            found = os.fstat(file.fileno())
            left = found.st_size if found.st_nlink == 1 else 0
            while left > 0:
                left -= file.write(secrets.token_bytes(min(left, 1 << 20)))
            os.fsync(file.fileno())
        os.unlink(path.name, dir_fd=folder)
        os.fsync(folder)
    if found.st_nlink > 1:
        reason = "was removed, but has a second name (a hard link), under which its contents are still there"
        remedy = f"find it with `find / -xdev -inum {found.st_ino}`; whoever made it may have read them"
        raise UsageError(Problem(str(path), reason, remedy))


def unfinished(path: Path) -> list[Path]:
    """List the incomplete files that killed writers of `path` left beside it."""
    return sorted(path.parent.glob(f".{path.name}.*{WRITING}"))


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time work in `folder`; the lock ends with the process, however it ends.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, exclusive_lock(Path(folder)), exclusive_lock(Path(folder)):
    ...     pass
    Traceback (most recent call last):
    das.errors.UsageError: ...: another run is at work in it; wait until it has ended, then run the same command again
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            remedy = "wait until it has ended, then run the same command again"
            raise UsageError(Problem(str(folder), "another run is at work in it", remedy)) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


def _make(folder: Path, mode: int) -> None:
    with full_disk_interrupts(folder):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        with folder_handle(folder) as handle:
            os.fchmod(handle, mode)


def fsync(path: Path) -> None:
    """Flush a file's contents, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def full_disk_interrupts(folder: Path) -> Iterator[None]:
    """Turn "no space left" and "quota exceeded" into Interrupted, which names `folder` and the remedy.

    Examples
    --------
    >>> with full_disk_interrupts(Path("out")):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    das.errors.Interrupted: out: there is no room on the disk (No space left on device);
    free space and run the same command again
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        reason, remedy = f"there is no room on the disk ({error.strerror})", "free space and run the same command again"
        raise Interrupted(Problem(str(folder), reason, remedy)) from error


def commitment(sha256: str, salt: bytes) -> str:
    """HMAC-SHA256 of a confidential file's hash under a secret salt.

    A plain hash of the input would be an exact function of the data: whoever knows all records but one could try each
    value of the last against it, and no noise would help. The salt stays in the confidential folder, where an auditor
    can check the commitment.
    """
    return hmac.new(salt, bytes.fromhex(sha256), hashlib.sha256).hexdigest()


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Write plain data as readable JSON, the same bytes for the same content.

    Examples
    --------
    >>> json_bytes({"a": 1})
    b'{\\n  "a": 1\\n}\\n'
    """
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
