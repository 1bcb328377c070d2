"""The page about inference does not lie: its Python runs, its commands exist, its methods are there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from das import cli
from das.inference.algorithms import ALGORITHMS
from das.inference.input_file import read_problem

PAGE = Path(__file__).resolve().parents[2] / "das" / "inference" / "README.md"
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
TEXT = PAGE.read_text(encoding="utf-8")
BEFORE, AFTER = TEXT.split("## On a release")


def run(text: str, names: dict[str, object]) -> int:
    blocks = [block for kind, block in BLOCK.findall(text) if kind == "python"]
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"README.md, python block {number}", "exec"), names)
    return len(blocks)


def test_blocks_that_need_no_release() -> None:
    assert run(BEFORE, {"__name__": "page"}) == 4


@pytest.mark.slow
def test_the_worked_example_on_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    run(BEFORE, names)
    assert run(AFTER, names) == 4


def test_commands_exist() -> None:
    typed = re.findall(r"das (\w+) ([\w-]+)[^\n`]*?((?: --[\w-]+)*)(?=[`\n])", TEXT)
    assert {first for first, _, _ in typed} >= {"infer"}
    for name in {second for first, second, _ in typed if first == "infer"}:
        command = cli.das.commands["infer"].commands[name]  # type: ignore[attr-defined]
        used = {option for _, second, given in typed if second == name for option in given.split()}
        assert used <= {option for each in command.params for option in each.opts}


def test_methods_that_the_table_names_exist() -> None:
    named = re.findall(r"\| `([\w.]+)\.(\w+)` \|", TEXT)
    assert len(named) >= 8
    for module, function in named:
        assert callable(getattr(importlib.import_module(f"das.inference.{module}"), function))
    assert set(ALGORITHMS) >= {"abc", "mcem", "data-augmentation"}


def test_the_example_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "problem.toml").write_text(next(block for kind, block in BLOCK.findall(TEXT) if kind == "toml"))
    statistic, _ = read_problem(tmp_path / "problem.toml")
    assert statistic.value[0] == 37.4
