"""Conventions that are tests: which way imports go, what library code never does, what stands beside a mechanism."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FORBIDDEN = {
    "geography": {"das", "pipelines", "apache_beam", "tests"},
    "das": {"pipelines", "apache_beam", "tests"},
    "pipelines": {"tests"},
}
LIBRARY = sorted(path for package in FORBIDDEN for path in (ROOT / package).rglob("*.py"))
SEEDED = {"Generator", "PCG64", "Philox", "SeedSequence", "default_rng", "BitGenerator"}
MECHANISMS = {"discrete_gaussian", "discrete_laplace", "stream", "table"}
TEXTS = {".py", ".md", ".toml", ".lock", ".yaml", ".yml", ".j2", ".cfg", ".cff", ".json", ".txt", ""}
LINES = 400

MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|home|tmp|Users)/\w")
REGISTRY = re.compile("py" + r"pi\.org|python" + r"hosted\.org")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Top-level packages that a module imports, wherever in it the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.split(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant):
                    yield node.lineno, str(argument.value).split(".")[0]


def offences(source: str, package: str) -> list[str]:
    """What library code must not do."""
    tree = ast.parse(source)
    found = [f"line {line}: imports {name}" for line, name in imported(tree) if name in FORBIDDEN[package]]
    found += [f"line {line}: imports random" for line, name in imported(tree) if name == "random"]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            found.append(f"line {node.lineno}: assert")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            found.append(f"line {node.lineno}: print")
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("np.random", "numpy.random"):
            if node.attr not in SEEDED:
                found.append(f"line {node.lineno}: global random state")
        elif isinstance(node, ast.ImportFrom) and node.module == "numpy.random":
            found += [f"line {node.lineno}: global random state" for a in node.names if a.name not in SEEDED]
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            parts = [part for part in ast.walk(node) if isinstance(part, ast.Attribute)]
            found += [
                f"line {part.lineno}: random at import" for part in parts if ast.unparse(part).endswith(".random")
            ]
    if not ast.get_docstring(tree):
        found.append("no docstring")
    return found


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_library_code_keeps_the_rules(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert offences(source, path.relative_to(ROOT).parts[0]) == []
    assert source.count("\n") <= LINES, f"more than {LINES} lines: two ideas in one module"


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("geography", "import das"),
        ("geography", "def f():\n    from das.schema.query import Query"),
        ("das", "import apache_beam as beam"),
        ("das", "import os, pipelines.run"),
        ("das", "if True:\n    from pipelines import run"),
        ("das", "import importlib\nimportlib.import_module('pipelines.run')"),
        ("pipelines", "from tests.conftest import Country"),
        ("das", "def f(x):\n    assert x"),
        ("das", "def f(x):\n    print(x)"),
        ("das", "import numpy as np\ndef f():\n    return np.random.normal()"),
        ("das", "import numpy as np\nRNG = np.random.default_rng(1)"),
        ("das", "from numpy.random import normal"),
        ("das", "import random"),
    ],
)
def test_a_broken_rule_is_found(package: str, source: str) -> None:
    assert len(offences(f'"""Doc."""\n{source}\n', package)) >= 1
    assert offences(source, package)[-1] == "no docstring"


def test_what_is_allowed_is_not_an_offence() -> None:
    source = '''"""Doc."""
import numpy as np
from numpy.random import PCG64, Generator
from geography import Spine

def f(rng: Generator) -> None:
    """>>> print(1)"""
    np.random.Generator(PCG64(1)).normal()
'''
    assert offences(source, "das") == []


def test_das_and_geography_load_without_an_engine() -> None:
    """Not only in the text: every module is imported, and no engine is there afterwards."""
    code = """
import importlib, pkgutil, sys
for package in ("geography", "das"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(module.name)
print(sorted({name.split(".")[0] for name in sys.modules} & {"apache_beam", "das", "pipelines", "tests"}))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=120)
    assert done.stdout == "['das']\n"


def test_a_mechanism_has_its_proof_beside_it() -> None:
    folder = ROOT / "das" / "noise"
    drawing = {
        path.stem
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and ("def draw(" in ast.unparse(node) or "TwoSidedNoise" in map(ast.unparse, node.bases))
    }
    assert drawing >= MECHANISMS - {"stream"}
    missing = [name for name in sorted(drawing - {"two_sided"} | MECHANISMS) if not (folder / f"{name}.md").is_file()]
    assert missing == []
    for name in MECHANISMS:
        assert len((folder / f"{name}.md").read_text(encoding="utf-8").split()) > 100, name


def project_files() -> Iterator[Path]:
    for folder in ("das", "geography", "pipelines", "tests", "config", "docs", "scripts", ".ci", ".github"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in TEXTS and not any(part == "__pycache__" for part in path.parts):
                yield path
    for path in sorted(ROOT.iterdir()):
        if path.is_file() and path.suffix in TEXTS and path.name != ".git":  # in a worktree, a file that Git wrote
            yield path


def test_no_file_names_a_place_on_one_machine_or_a_registry() -> None:
    files = list(project_files())
    assert {"README.md", "pyproject.toml", "requirements.lock", "requirements-dev.lock", "CITATION.cff", "ci.yml"} <= {
        path.name for path in files
    }
    found = [
        f"{name_of(path)}: {match.group()}"
        for path in files
        for pattern in (MACHINE_PATH, REGISTRY)
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("see /" + "work/main", True),
        ('Path("/' + 'tmp/x")', True),
        ("cd /" + "root/a", True),
        ("#!/usr/bin/env bash", False),
        ("and/or /dev/null", False),
        ("https://example.org/" + "home/x", False),
        ("re.search('/work|/tmp')", False),
    ],
)
def test_a_place_on_one_machine_is_recognised(text: str, wrong: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) == wrong


LOCKS = ("requirements.lock", "requirements-dev.lock")


def pins(lock: str) -> dict[str, str]:
    text = (ROOT / lock).read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+) \\$", text, flags=re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_names_exact_hashed_versions_and_no_index(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert "http" + "://" not in text
    assert "http" + "s://" not in text
    assert "index-url" not in text
    pinned = pins(lock)
    loose = [line for line in text.splitlines() if re.match(r"[A-Za-z]", line) and "==" not in line]
    assert loose == []
    assert {"apache-beam", "numpy", "cvxpy", "pyarrow"} <= pinned.keys()
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
    assert len(blocks) == len(pinned)


def test_a_run_installs_what_it_needs_and_tests_add_to_it() -> None:
    """The build backend is in both: das is installed without fetching anything that a lock does not name."""
    runtime, dev = (pins(lock) for lock in LOCKS)
    assert runtime.items() <= dev.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[\s<>=\[;]", requirement)[0].lower() for requirement in requirements}

    assert names(project["project"]["dependencies"]) <= runtime.keys()
    assert names(project["build-system"]["requires"]) | {"editables", "setuptools"} <= runtime.keys()
    for extra in project["project"]["optional-dependencies"].values():
        assert names(extra) <= dev.keys() - runtime.keys()


def test_the_version_is_the_same_wherever_it_is_written() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_tests_have_names_of_their_own() -> None:
    """There are no packages among the tests, so two files of one name would be one module."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
    assert not list((ROOT / "tests").rglob("__init__.py"))
