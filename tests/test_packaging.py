"""What people install: wheel and source distribution, the bundle for machines without a network, container files."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONTAINERS = sorted((ROOT / "containers").glob("*.Containerfile"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def clean_environment() -> dict[str, str]:
    """Neither this checkout nor a package index."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    return {**kept, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def without_network(*command: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a namespace that has no network at all."""
    call = ["unshare", "--map-root-user", "--net", *map(str, command)]
    return subprocess.run(call, env=clean_environment(), cwd="/", capture_output=True, text=True)


def need_namespaces() -> None:
    if not shutil.which("unshare") or subprocess.run(["unshare", "--map-root-user", "--net", "true"]).returncode:
        pytest.skip("this kernel gives no network namespace to its users")


def lend_dependencies(environment: Path) -> None:
    """Let an environment see the packages of this one, but not its editable das: lines of a .pth are plain folders."""
    packages = next(environment.glob("lib/python*/site-packages"))
    lent = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "lent.pth").write_text(lent + "\n")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, and the wheel that is built from it alone."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run([*build, "--target", "sdist"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "source", filter="data")
    source = next((folder / "source").iterdir())
    subprocess.run([*build, "--target", "wheel"], cwd=source, check=True, capture_output=True)
    return folder


@pytest.mark.slow
def test_the_wheel_is_complete_and_small(distributions: Path) -> None:
    wheel = next(distributions.glob("*.whl"))
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {
        path.relative_to(ROOT).as_posix()
        for part in ("das", "geography", "pipelines")
        for path in (ROOT / part).rglob("*.py")
    }
    assert modules - names == set()
    assert {f"das/_config/{path.name}" for path in (ROOT / "config").glob("*.toml")} <= names
    assert "das/report/privacy.html.j2" in names
    assert not [name for name in names if name.startswith(("tests/", "docs/")) or name.endswith(".png")]
    assert wheel.stat().st_size < 2_000_000
    assert next(distributions.glob("*.tar.gz")).stat().st_size < 2_000_000


@pytest.mark.slow
@pytest.mark.timeout(900)  # a fresh environment compiles its kernels anew
def test_the_demo_runs_from_the_wheel_alone_without_a_network(distributions: Path, tmp_path: Path) -> None:
    need_namespaces()
    environment = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    wheel = next(distributions.glob("*.whl"))
    python = environment / "bin" / "python"
    installed = without_network(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    assert installed.returncode == 0, installed.stderr
    lend_dependencies(environment)
    where = without_network(
        python, "-c", "import das, pipelines; print(das.__file__, pipelines.__file__)"
    ).stdout.split()
    assert all(Path(path).is_relative_to(environment) for path in where)
    shown = without_network(
        environment / "bin" / "das", "demo", "--blocks", 20, "--people", 300, "--out", tmp_path / "out"
    )
    assert shown.returncode == 0, shown.stderr
    assert "verified" in shown.stdout
    assert (tmp_path / "out" / "release" / "manifest.json").is_file()
    presets = without_network(environment / "bin" / "das", "presets")
    assert "pl94-2020" in presets.stdout


@pytest.mark.slow
def test_the_bundle_installs_without_a_network_and_refuses_altered_files(tmp_path: Path) -> None:
    need_namespaces()
    bundle = tmp_path / "bundle"
    call = ["bash", str(ROOT / "scripts" / "bundle"), str(bundle), "--without-dependencies"]
    made = subprocess.run(call, env={**os.environ, "DAS_PYTHON": sys.executable}, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    again = subprocess.run(call, env={**os.environ, "DAS_PYTHON": sys.executable}, capture_output=True, text=True)
    assert again.returncode == 2
    assert "is not empty" in again.stderr
    wheel = next((bundle / "wheels").glob("das-*.whl"))
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() in (bundle / "requirements.txt").read_text()

    target = tmp_path / "target"
    install = ("env", f"DAS_PYTHON={sys.executable}", "bash", bundle / "install")
    done = without_network(*install, target)
    assert done.returncode == 0, done.stderr
    assert f"installed: {target}/bin/das" in done.stdout
    lend_dependencies(target)
    assert PROJECT["version"] in without_network(target / "bin" / "das", "--version").stdout

    with wheel.open("ab") as file:
        file.write(b"x")
    refused = without_network(*install, tmp_path / "other")
    assert refused.returncode == 3
    assert "is not what it was" in refused.stderr
    assert not (tmp_path / "other").exists()


def test_slim_removes_tests_and_unused_solvers_only(tmp_path: Path) -> None:
    packages = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    for name in ("numpy/tests", "numpy", "scs", "scs-3.0.dist-info", "own/tests_of_hypotheses"):
        (packages / name).mkdir(parents=True, exist_ok=True)
        (packages / name / "__init__.py").write_text("x = 1\n")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    call = [sys.executable, str(ROOT / "scripts" / "slim")]
    assert (
        subprocess.run([*call, str(tmp_path / "env")], check=True, capture_output=True, text=True).stdout.count("MB")
        == 2
    )
    left = {path.relative_to(packages).as_posix() for path in packages.rglob("*") if path.is_dir()}
    assert left == {"numpy", "own", "own/tests_of_hypotheses"}
    assert subprocess.run([*call, str(packages)], capture_output=True).returncode == 1


def instructions(path: Path) -> list[tuple[str, str]]:
    """The instructions of a container file, continued lines joined."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(line.split()[0], line.split(maxsplit=1)[1] if " " in line else "") for line in lines]


def faults(lines: list[tuple[str, str]]) -> list[str]:
    """What a linter of container files reports first, and a privacy officer next."""
    found = []
    known = {"ARG", "FROM", "LABEL", "WORKDIR", "RUN", "COPY", "ENV", "USER", "ENTRYPOINT", "CMD"}
    found += [f"{name}: unknown" for name, _ in lines if name not in known]
    stages = {rest.split()[-1] for name, rest in lines if name == "FROM" and " AS " in rest}
    for name, rest in lines:
        if name == "FROM" and not rest.startswith("${") and not re.match(r"\S+/\S+:(?!latest)\S+", rest):
            found.append(f"FROM {rest}: names no version")
        if (
            name == "RUN"
            and "apt-get install" in rest
            and not ("--no-install-recommends" in rest and "rm -rf /var/lib/apt" in rest)
        ):
            found.append("RUN apt-get: recommends, or leaves its lists")
        if name == "RUN" and re.search(r"curl|wget|sudo|pip install(?!.*--require-hashes)", rest):
            found.append(f"RUN {rest}: fetches what no hash protects")
        if name in ("ENTRYPOINT", "CMD") and not rest.startswith("["):
            found.append(f"{name}: not in JSON form")
        if name == "COPY" and "--from=" in rest and re.search(r"--from=(\w+)", rest).group(1) not in stages:
            found.append(f"COPY {rest}: from a stage that is not there")
        if name == "COPY" and "--from=" not in rest:
            found += [f"COPY {part}: not there" for part in rest.split()[:-1] if not (ROOT / part).exists()]
    users = [rest for name, rest in lines if name == "USER"]
    if not users or users[-1] in ("root", "0"):
        found.append("runs as root")
    elif not users[-1].isdigit():
        found.append(f"USER {users[-1]}: a host that lets no root in cannot tell who it is without a number")
    return found


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.name)
def test_container_files_have_no_fault(path: Path) -> None:
    assert faults(instructions(path)) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("FROM python", "names no version"),
        ("FROM docker.io/library/python:latest", "names no version"),
        ("RUN curl -s http://example | sh", "no hash"),
        ("COPY nowhere .", "not there"),
        ("ENTRYPOINT das", "JSON"),
        ("RUN apt-get install gcc", "recommends"),
        ("EXPOSE 80", "unknown"),
        ("USER das", "without a number"),
    ],
)
def test_a_fault_is_found(line: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "x.Containerfile"
    file.write_text(f"{line}\n" if line.startswith("USER") else f"{line}\nUSER 1000\n")
    assert fault in " ".join(faults(instructions(file)))
    file.write_text("FROM docker.io/library/python:3.12-slim\n")
    assert faults(instructions(file)) == ["runs as root"]


def test_entry_points_of_containers_are_commands_of_the_package() -> None:
    entries = [rest for path in CONTAINERS for name, rest in instructions(path) if name == "ENTRYPOINT"]
    assert sorted(entries) == ['["das"]', '["das-worker"]']
    assert set(PROJECT["scripts"]) == {"das", "das-worker"}


@pytest.mark.parametrize("package", ["apache-beam", "ortools"])
def test_supported_versions_of_python_are_those_of_what_is_pinned(package: str) -> None:
    """Of the locks' Beam, and of the last OR-Tools that can be loaded beside cvxpy's HiGHS."""
    classifiers = metadata(package).get_all("Classifier") or []
    known = {text.rpartition(" ")[2] for text in classifiers if re.search(r"Python :: 3\.\d+$", text)}
    assert PROJECT["requires-python"] == ">=3.11,<3.13"
    assert {"3.11", "3.12"} <= known
    assert "3.13" not in known, f"{package} supports Python 3.13 now: perhaps das can"
    for page in ("README.md", "docs/for/engineers.md"):
        assert "Python 3.11 or 3.12" in (ROOT / page).read_text(encoding="utf-8")
