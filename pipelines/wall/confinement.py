"""What the stages after ``measure`` may open, and how the kernel keeps them to it.

They need Python and its packages, the public files that the config names, and the release folder. They need no record,
no histogram, no key and no ledger. :meth:`Confinement.enforce` makes the kernel refuse those, then tries to open each
of them: a wall that lets something through ends the run.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import das
import geography
from das.compiled import kernel_root
from das.errors import Problem, UsageError
from das.plan import presets
from pipelines.wall import landlock, mount_namespace

__all__ = ["Confinement", "Wall", "weakest"]

LANDLOCK, MOUNT_NAMESPACE, NOTHING = KINDS = ("landlock", "mount namespace", "none")
"""What may keep the wall, the strongest first."""

SYSTEM = (
    *("/bin", "/lib", "/lib32", "/lib64", "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib"),
    *("/usr/share", "/etc", "/proc", "/sys", "/dev/random", "/dev/urandom", "/dev/zero"),
)
"""What Python, its libraries and the C library read. Landlock keeps ``/proc`` of processes outside closed by itself."""
SCRATCH = ("/dev/null", "/dev/shm")


@dataclass(frozen=True, slots=True)
class Wall:
    """What kept the stages after ``measure`` from the confidential side, as the statement publishes it."""

    kind: str
    version: int | None = None

    @property
    def words(self) -> str:
        """One sentence for the statement.

        >>> Wall(LANDLOCK, 7).words
        'The kernel refused them every confidential file (Landlock, version 7), and that was tried before they began.'
        """
        if self.kind == LANDLOCK:
            by = f"(Landlock, version {self.version})"
            return f"The kernel refused them every confidential file {by}, and that was tried before they began."
        if self.kind == MOUNT_NAMESPACE:
            return "A mount namespace hid every confidential file from them, and that was tried before they began."
        return (
            "Nothing but the program itself kept them from confidential files: this kernel has neither Landlock nor "
            "user namespaces that an ordinary user may make."
        )

    def to_json(self) -> dict[str, str | int | None]:
        """As the record of a stage holds it."""
        return {"enforced_by": self.kind, "version": self.version}


def weakest(walls: Iterable[Wall]) -> Wall:
    """The wall that promises least: what a release of several stages may say.

    >>> weakest([Wall(LANDLOCK, 7), Wall(NOTHING), Wall(LANDLOCK, 4)])
    Wall(kind='none', version=None)
    """
    return max(walls, key=lambda wall: (KINDS.index(wall.kind), -(wall.version or 0)))


@dataclass(frozen=True, slots=True)
class Confinement:
    """The files on either side of the wall.

    Parameters
    ----------
    release : Path
        The release folder, which is read and written.
    temporary : Path
        A private folder for temporary files; the system's own is shared with others.
    public : tuple of Path
        Public files that are read, such as memberships of areas.
    hidden : tuple of Path
        What must be out of reach: the records, the confidential folder, the ledger.
    network : bool
        Whether work is sent to a cluster over TCP.
    """

    release: Path
    temporary: Path
    public: tuple[Path, ...]
    hidden: tuple[Path, ...]
    network: bool = False

    def enforce(self, kinds: Sequence[str] = KINDS) -> Wall:
        """Confine this process, which must have a single thread, and all that it starts.

        Raises
        ------
        UsageError
            What must be hidden lies in a folder that must be readable, or can be opened all the same.
        """
        self._require_apart()
        tempfile.tempdir = os.environ["TMPDIR"] = str(self.temporary)
        wall = next((wall for kind in kinds if (wall := self._confined_by(kind)) is not None), None)
        if wall is None:
            raise UsageError(Problem("this kernel", f"has no {' or '.join(kinds)}", "run the work on one that has"))
        if wall.kind != NOTHING:
            self._require_closed()
        return wall

    def to_json(self) -> dict[str, Any]:
        """As plain data, for a worker on another machine."""
        return {
            "release": str(self.release),
            "temporary": str(self.temporary),
            "public": [str(path) for path in self.public],
            "hidden": [str(path) for path in self.hidden],
            "network": self.network,
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Confinement:
        """Read what :meth:`to_json` wrote.

        >>> there = Confinement(Path("/out/release"), Path("/t"), (), (Path("/out/confidential"),), network=True)
        >>> Confinement.from_json(there.to_json()) == there
        True
        """
        return Confinement(
            release=Path(content["release"]),
            temporary=Path(content["temporary"]),
            public=tuple(map(Path, content["public"])),
            hidden=tuple(map(Path, content["hidden"])),
            network=content["network"],
        )

    def _confined_by(self, kind: str) -> Wall | None:
        """Confine by one means, or return None if this kernel does not have it."""
        try:
            if kind == LANDLOCK:
                if not landlock.abi():
                    return None
                readable = (*_needed_by_python(), *self.public)
                writable = (self.release, self.temporary, kernel_root(), *map(Path, SCRATCH))
                return Wall(kind, landlock.restrict(readable=readable, writable=writable, network=self.network))
            if kind == MOUNT_NAMESPACE:
                mount_namespace.hide(self.hidden)
                return Wall(kind)
        except OSError:
            return None
        return Wall(NOTHING)

    def _require_apart(self) -> None:
        readable = [path.resolve() for path in (*_needed_by_python(), self.release, self.temporary) if path.exists()]
        for path in (path.resolve() for path in self.hidden):
            for folder in readable:
                if path.is_relative_to(folder):
                    reason = f"is confidential and lies in {folder}, which the stages after `measure` must read"
                    raise UsageError(Problem(str(path), reason, "move it to a folder of its own"))

    def _require_closed(self) -> None:
        for path in self.hidden:
            if _opens(path):
                reason = "can still be opened behind the wall that the kernel was asked to keep"
                raise UsageError(Problem(str(path), reason, "report this; the run stops before anything reads it"))


def _opens(path: Path) -> bool:
    """Whether a file can be read, or a folder listed; a device that covers a file holds nothing."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not stat.S_ISCHR(os.fstat(handle).st_mode)
    finally:
        os.close(handle)


def _needed_by_python() -> Iterator[Path]:
    """Folders of the system, of Python, of installed packages, and of this project."""
    yield from map(Path, SYSTEM)
    for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix}:
        yield from (Path(prefix, name) for name in ("bin", "lib", "lib64", "include"))
    yield from (Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages"))
    for package in (das, geography):
        yield from map(Path, package.__path__)
    yield Path(__file__).parents[1]
    yield presets.folder()
