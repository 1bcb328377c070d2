"""The folder of a run: what may be published, and what stays confidential.

Estimation and all later stages receive the :class:`ReleaseFolder` alone, which holds no path to the confidential side.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from das.errors import Problem, UsageError
from das.plan.plan import Plan
from das.storage.files import make_private, make_public
from geography.file_kind import remote_scheme

__all__ = ["ConfidentialFolder", "Layout", "ReleaseFolder", "make_root", "refuse_remote", "without_links"]


@dataclass(frozen=True, slots=True)
class ReleaseFolder:
    """What may be published, mode 0755; 0700 if its noise could be removed by whoever guesses a testing key.

    Examples
    --------
    >>> ReleaseFolder(Path("out/release")).measurements.as_posix()
    'out/release/measurements'
    """

    path: Path

    @property
    def measurements(self) -> Path:
        """Noisy measurements: a file per level."""
        return self.path / "measurements"

    @property
    def facts(self) -> Path:
        """Public facts t: the spine, and a file per level."""
        return self.path / "facts"

    @property
    def counts(self) -> Path:
        """Protected integer counts: a file per level."""
        return self.path / "counts"

    def mechanism(self, plan: Plan) -> Path:
        """What the mechanism itself released: noisy measurements, or counts that conform already."""
        return self.path / plan.mechanism_stage.folder

    @property
    def estimates(self) -> Path:
        """Best linear unbiased estimates with standard deviations: a file per level."""
        return self.path / "estimates"

    @property
    def tables(self) -> Path:
        """Tables keyed by geocode."""
        return self.path / "tables"

    @property
    def area_members(self) -> Path:
        """Which leaves each area off the spine consists of: a file per kind of area."""
        return self.tables / "areas"

    @property
    def microdata(self) -> Path:
        """Protected records."""
        return self.path / "microdata"

    @property
    def codebook(self) -> Path:
        """What every column of tables and records means, as a Frictionless data package."""
        return self.path / "datapackage.json"

    @property
    def views(self) -> Path:
        """A script that makes views of all files in DuckDB."""
        return self.path / "duckdb.sql"

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.path / "config.toml"

    @property
    def statement(self) -> Path:
        """The privacy statement for machines."""
        return self.path / "privacy.json"

    @property
    def report(self) -> Path:
        """The privacy statement for people."""
        return self.path / "privacy.html"

    @property
    def manifest(self) -> Path:
        """The manifest, written last."""
        return self.path / "manifest.json"


@dataclass(frozen=True, slots=True)
class ConfidentialFolder:
    """What must stay confidential, mode 0700."""

    path: Path

    @property
    def histograms(self) -> Path:
        """True sparse histograms: a file per level."""
        return self.path / "histograms"

    @property
    def key(self) -> Path:
        """The run key, while it is needed."""
        return self.path / "run.key"

    @property
    def salt(self) -> Path:
        """The salt of the input's published hash; it is kept for auditors."""
        return self.path / "commitment.salt"

    @property
    def origin(self) -> Path:
        """Paths of the config and the ledger on this machine."""
        return self.path / "whereabouts.json"


def without_links(folder: Path) -> Path:
    """Where a folder really is, if symbolic links lead to it; the path as it is, if none does.

    A run looks its links up once, when it begins. From then on a link on the way is no longer followed unnoticed.

    Examples
    --------
    >>> without_links(Path("/dev/fd")) == Path("/dev/fd"), without_links(Path("/usr/..")).as_posix()
    (False, '/')
    """
    real = folder.resolve()
    return folder if real == folder.absolute() else real


def refuse_remote(folder: Path) -> None:
    """Refuse an address of object storage, which would become a folder of that name here.

    Examples
    --------
    >>> refuse_remote(Path("gs://bucket/out"))
    Traceback (most recent call last):
    das.errors.UsageError: gs://bucket/out: a run cannot be written to gs://; name a folder of this machine, or ...
    """
    if scheme := remote_scheme(folder):
        address = str(folder).replace(":/", "://", 1)  # pathlib makes one slash of two
        remedy = "name a folder of this machine, or one that all workers mount, and copy the finished release"
        raise UsageError(Problem(address, f"a run cannot be written to {scheme}://", remedy))


def make_root(folder: Path, *, private: bool = False) -> None:
    """Make the folder of a run, unless it exists: mode 0755 whatever the umask, so that the release can be read.

    ``private`` makes it 0700, where even the release must not be read by others.
    """
    refuse_remote(folder)
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise UsageError(Problem(str(nearest), "is a file", "name a new folder with --out"))
    if nearest != folder:
        for parent in reversed(folder.absolute().parents):
            parent.mkdir(mode=0o755, exist_ok=True)  # pathlib would let the umask decide whether others may write it
        (make_private if private else make_public)(folder)


@dataclass(frozen=True, slots=True)
class Layout:
    """The folder of one run."""

    root: Path

    @property
    def release(self) -> ReleaseFolder:
        """The folder that may be published."""
        return ReleaseFolder(self.root / "release")

    @property
    def confidential(self) -> ConfidentialFolder:
        """The folder that must stay confidential."""
        return ConfidentialFolder(self.root / "confidential")

    @property
    def run(self) -> Path:
        """The identity of the run in this folder, so that the same command continues it."""
        return self.root / "run.json"

    @property
    def log(self) -> Path:
        """One line per stage."""
        return self.root / "run.log"
