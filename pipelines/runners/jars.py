"""The jars of a cluster: downloaded once by pip and Maven, checked against one digest, kept in the user's cache.

The cluster's own jars come from its Python distribution; Beam's job server comes from Maven with its dependencies as
separate jars, instead of one large jar. It has the release of the Python Beam, which is pinned to it: the newest that
common Maven mirrors hold with all dependencies.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from das.errors import Problem, UsageError

__all__ = ["BEAM", "Distribution", "artifact_of", "cache_folder", "digest_of_jars", "jars", "java"]

BEAM = "2.62.0"
"""Also the pin in pyproject.toml."""
CACHE = "DAS_CACHE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Where a cluster's jars come from."""

    cluster: str
    version: str
    package: str
    """The Python source distribution that holds the cluster's own jars, with its SHA-256."""
    package_sha256: str
    wanted: tuple[str, ...] = ("",)
    """Prefixes of the names of the jars that are needed from it."""
    runner: str
    """Beam's artifact for this cluster, and the groups that are left out of its dependencies."""
    excluded: tuple[str, ...]
    below: str = ""
    """The folder in which the cluster expects its jars, relative to its home."""
    jars_sha256: str
    """Of all jars together: see :func:`digest_of_jars`."""

    @property
    def home(self) -> Path:
        """Where it is kept."""
        # Beam sends its own class path to the cluster with every job, a few hundred megabytes, unless the path contains
        # "gradle/wrapper". The cluster has these jars already: it is started from the same folder.
        return cache_folder() / f"{self.cluster.lower()}-{self.version}-beam-{BEAM}" / "gradle" / "wrapper"

    @property
    def pom(self) -> str:
        """The project that Maven is to resolve."""
        exclusions = "".join(
            f"<exclusion><groupId>{group}</groupId><artifactId>*</artifactId></exclusion>" for group in self.excluded
        )
        return f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>das</groupId><artifactId>job-server</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.beam</groupId><artifactId>{self.runner}</artifactId><version>{BEAM}</version>
    <exclusions>{exclusions}</exclusions>
  </dependency></dependencies>
</project>
"""


def java(cluster: str) -> str:
    """The path of the Java command."""
    return _tool("java", cluster, "a Java runtime, 11 or 17 (on Debian: apt-get install openjdk-17-jre-headless)")


def cache_folder() -> Path:
    """Where downloads are kept: ``$DAS_CACHE``, or ``das`` in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(CACHE) or Path(home) / "das")


def jars(needed: Distribution) -> Path:
    """The folder of the jars: downloaded if it is missing, and always checked."""
    if version("apache-beam") != BEAM:
        reason = f"is {version('apache-beam')} here, and the job server is of {BEAM}"
        raise UsageError(Problem("apache-beam", reason, "install requirements.lock: `bash scripts/setup` does"))
    folder = needed.home / needed.below
    if not folder.exists():
        _download(needed, folder)
    if digest_of_jars(folder) != needed.jars_sha256:
        raise UsageError(
            Problem(str(folder), "holds other jars than those that were tested", "delete it and try again")
        )
    return folder


def digest_of_jars(folder: Path) -> str:
    """SHA-256 over the names and the SHA-256 of all files, in the order of their names.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     digest_of_jars(Path(folder)) == hashlib.sha256().hexdigest()
    True
    """
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            whole.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def artifact_of(jar: str) -> str:
    """The name of a jar without its version.

    >>> artifact_of("jackson-module-scala_2.12-2.15.2.jar")
    'jackson-module-scala_2.12'
    """
    return re.sub(r"-\d.*", "", jar)


def _download(needed: Distribution, folder: Path) -> None:
    mvn = _tool("mvn", needed.cluster, "Maven (on Debian: apt-get install maven)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name)
        found = work / "jars"
        (work / "pom.xml").write_text(needed.pom)
        plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        only = ["-DincludeScope=runtime", f"-DoutputDirectory={found}"]
        _fetch("Beam's job server", [mvn, "-q", "-B", "-C", "-U", "-f", str(work / "pom.xml"), plugin, *only])
        pinned = f"{needed.package}=={needed.version} --hash=sha256:{needed.package_sha256}\n"
        (work / "needed.txt").write_text(pinned)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        _fetch(needed.cluster, [*pip, "--require-hashes", "-r", str(work / "needed.txt"), "-d", name])
        _unpack(needed, work / f"{needed.package}-{needed.version}.tar.gz", found)
        found.rename(folder)


def _unpack(needed: Distribution, package: Path, found: Path) -> None:
    """Add the cluster's own jars, except those that Beam has brought in the version that it needs."""
    brought = {artifact_of(jar.name) for jar in found.iterdir()}
    with tarfile.open(package) as archive:
        for member in archive:
            member.name = Path(member.name).name
            is_wanted = member.name.startswith(needed.wanted) and member.name.endswith(".jar")
            content = archive.extractfile(member) if is_wanted and member.isfile() else None
            if content is not None and artifact_of(member.name) not in brought:
                with content, (found / member.name).open("wb") as jar:  # Python 3.11.2 knows no filter for `extract`
                    shutil.copyfileobj(content, jar)


def _fetch(what: str, command: Sequence[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        lines = [line for line in (ended.stdout + ended.stderr).splitlines() if "ERROR" in line] or ["no reason given"]
        remedy = f"try again with a network, or copy the folder {cache_folder()} from a machine that has one"
        raise UsageError(Problem(what, f"could not be downloaded: {lines[0][:300]}", remedy))


def _tool(name: str, cluster: str, what: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise UsageError(Problem(name, "is not installed", f"a {cluster} cluster needs {what}"))
    return path
