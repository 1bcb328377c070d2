"""The Java side of Flink: downloaded once by pip and Maven, checked against one digest, kept in the user's cache.

Flink's own jars come with its Python distribution; Beam's job server is resolved from Maven with all that it needs, in
parts instead of one large jar. It is of the same release as the Python Beam, which is pinned to it: the newest that can
be had complete wherever Maven mirrors hold what is in common use.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from das.errors import Problem, UsageError

__all__ = ["BEAM", "FLINK", "jars", "java"]

FLINK = "1.19.3"
BEAM = "2.62.0"
"""Also the pin in pyproject.toml."""
FLINK_SHA256 = "4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60"
"""Of the source distribution apache-flink-libraries."""
JARS_SHA256 = "d4fd4b0b079a416cb20fb68aa81275a1df8460289f410fa1b2c0e6b5603bb6d4"
"""Of all jars together: see :func:`digest_of_jars`."""
NEEDED = ("flink-dist-", "log4j-")
CACHE = "DAS_CACHE"

POM = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>das</groupId><artifactId>job-server</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.beam</groupId><artifactId>beam-runners-flink-1.19</artifactId><version>{BEAM}</version>
    <exclusions>
      <exclusion><groupId>org.apache.flink</groupId><artifactId>*</artifactId></exclusion>
      <exclusion><groupId>org.slf4j</groupId><artifactId>*</artifactId></exclusion>
    </exclusions>
  </dependency></dependencies>
</project>
"""


def java() -> str:
    """Where Java is."""
    return _tool("java", "a Java runtime, 11 or 17 (on Debian: apt-get install openjdk-17-jre-headless)")


def cache_folder() -> Path:
    """Where downloads are kept: ``$DAS_CACHE``, or ``das`` in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(CACHE) or Path(home) / "das")


def jars() -> Path:
    """Where the jars are, downloaded if need be and checked in any case."""
    if version("apache-beam") != BEAM:
        reason = f"is {version('apache-beam')} here, and the job server is of {BEAM}"
        raise UsageError(Problem("apache-beam", reason, "install requirements.lock: `bash scripts/setup` does"))
    # Beam sends its own class path to the cluster with every job, a few hundred megabytes, unless the path contains
    # "gradle/wrapper". The cluster has these jars already: it is started from the same folder.
    folder = cache_folder() / f"flink-{FLINK}-beam-{BEAM}" / "gradle" / "wrapper"
    if not folder.exists():
        _download(folder)
    if digest_of_jars(folder) != JARS_SHA256:
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


def _download(folder: Path) -> None:
    mvn = _tool("mvn", "Maven (on Debian: apt-get install maven)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name)
        found = work / "jars"
        (work / "pom.xml").write_text(POM)
        plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        only = ["-DincludeScope=runtime", f"-DoutputDirectory={found}"]
        _fetch("Beam's job server", [mvn, "-q", "-B", "-C", "-U", "-f", str(work / "pom.xml"), plugin, *only])
        (work / "needed.txt").write_text(f"apache-flink-libraries=={FLINK} --hash=sha256:{FLINK_SHA256}\n")
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        _fetch("Flink", [*pip, "--require-hashes", "-r", str(work / "needed.txt"), "-d", name])
        with tarfile.open(work / f"apache-flink-libraries-{FLINK}.tar.gz") as archive:
            for member in archive:
                member.name = Path(member.name).name
                if member.isfile() and member.name.startswith(NEEDED) and member.name.endswith(".jar"):
                    archive.extract(member, found, filter="data")
        found.rename(folder)


def _fetch(what: str, command: Sequence[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        lines = [line for line in (ended.stdout + ended.stderr).splitlines() if "ERROR" in line] or ["no reason given"]
        remedy = f"try again with a network, or copy the folder {cache_folder()} from a machine that has one"
        raise UsageError(Problem(what, f"could not be downloaded: {lines[0][:300]}", remedy))


def _tool(name: str, what: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise UsageError(Problem(name, "is not installed", f"a Flink cluster needs {what}"))
    return found
