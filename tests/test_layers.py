"""The layers of the house as data: an import may go down or stay in its package, and never up, lazy ones included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

LAYERS: tuple[tuple[str, ...], ...] = (
    ("geography",),
    ("das.errors",),
    ("das.exact", "das.compiled"),
    ("das.schema",),
    ("das.accounting",),
    ("das.noise", "das.report"),
    ("das.plan", "das.table"),
    ("das.runner", "das.records", "das.storage", "das.congenial"),
    ("das.facts", "das.demo"),
    # == the wall: nothing below reads the confidential side, but `evaluation`, `inference`, `synthesis`,
    #    `table_release` and `check` ==
    ("das.estimation", "das.promise"),
    ("das.release",),
    ("das.evaluation", "das.inference", "das.checks"),
    ("das.synthesis",),
    ("das.table_release",),
    ("das.bench", "das.api"),
    ("das",),
    ("das.commands",),
    ("das.cli",),
    ("pipelines.elements", "pipelines.wall"),
    ("pipelines.workers",),
    ("pipelines.runners",),
    ("pipelines.stages",),
    ("pipelines.transforms",),
    ("pipelines.stage_runner",),
    ("pipelines.confidential_stages", "pipelines.public_stages"),
    ("pipelines.far_side",),
    ("pipelines.run",),
    ("pipelines",),
)
"""From the bottom to the top; packages of one layer do not import each other."""

TRUE_COUNTS = {
    "das/schema/counts.py",  # the type
    "das/records/encode.py",  # records become true counts
    "das/noise/measure.py",  # noise is added to them
    "das/checks.py",  # the data are checked against the public facts, before anything is drawn
    "das/evaluation/privacy_audit/mechanism_runs.py",  # counts of generated worlds, of nobody
    "das/evaluation/repeat.py",  # errors of data that need no protection
    "das/evaluation/truth.py",  # errors, for people who are cleared for the data
    "pipelines/elements/arrays.py",  # how they travel on the confidential side
    "pipelines/stages/tabulate.py",
    "pipelines/stages/congenial.py",  # a mechanism: it stands on the confidential side
    "pipelines/transforms/elements.py",  # the same two steps in other pipelines
    "pipelines/transforms/measure.py",
    "pipelines/transforms/congenial.py",
}
"""The only modules that may name the type of true counts."""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def package_of(module: str) -> str:
    """The package whose layer a module belongs to."""
    parts = module.split(".")
    return parts[0] if parts[0] == "geography" else ".".join(parts[:2])


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Modules that a source imports, wherever the import stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from ((node.lineno, str(arg.value)) for arg in node.args[:1] if isinstance(arg, ast.Constant))


LAYER_OF = {package: number for number, layer in enumerate(LAYERS) for package in layer}


def violations(module: str, source: str) -> list[str]:
    mine = package_of(module)
    out = []
    for line, target in imported(source):
        if target.split(".")[0] not in ("geography", "das", "pipelines"):
            continue
        theirs = package_of(target)
        theirs = theirs if theirs in LAYER_OF else target.split(".")[0]  # `from das import name`
        if theirs != mine and LAYER_OF[theirs] >= LAYER_OF[mine]:
            out.append(f"line {line}: {mine} imports {target}, which is not below it")
    return out


SOURCES = sorted(path for package in ("geography", "das", "pipelines") for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_imports_go_down(path: Path) -> None:
    assert violations(module_of(path), path.read_text(encoding="utf-8")) == []


def test_every_package_has_a_layer() -> None:
    assert {package_of(module_of(path)) for path in SOURCES} == set(LAYER_OF)
    assert len(LAYER_OF) == sum(map(len, LAYERS)), "a package stands in one layer"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("das.schema.query", "from das.plan.plan import Plan"),
        ("das.noise.measure", "def lazily():\n    from das.release import tables"),
        ("das.estimation.rounding", "import das.promise.account"),
        ("das.records.read", "from das.storage.files import json_bytes"),
        ("das.plan.plan", "import importlib\nimportlib.import_module('das.facts.collect')"),
        ("das.release.tables", "from das import load"),
        ("geography.spine", "from das.errors import Problem"),
        ("pipelines.workers.worker", "from pipelines import run"),
    ],
)
def test_an_import_that_goes_up_is_found(module: str, source: str) -> None:
    assert len(violations(module, source)) == 1


def test_the_root_of_das_holds_only_the_doors() -> None:
    doors = {path.stem for path in (ROOT / "das").glob("*.py")}
    assert doors == {"__init__", "api", "checks", "cli", "compiled", "errors", "exact", "runner"}


def names_in(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {str(getattr(node, "id", getattr(node, "name", ""))) for node in nodes}


def test_true_counts_are_named_before_the_wall_alone() -> None:
    naming = {path.relative_to(ROOT).as_posix() for path in SOURCES if "TrueCounts" in names_in(path)}
    assert naming == TRUE_COUNTS
