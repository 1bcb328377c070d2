"""The documentation does not lie: its Python runs, its commands exist, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from das import cli

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!`)\]\(([^)#\s]+)(?:#[^)]*)?\)|<img src=\"([^\"]+)\"")
LONGEST_README = 200

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def commands(page: Path) -> list[list[str]]:
    """Lines that a person types: those behind a ``$`` in console blocks, all in bash blocks."""
    console = (line for text in blocks(page, "console") for line in text.splitlines())
    typed = [line.removeprefix("$ ") for line in console if line[:2] == "$ "]
    typed += [line for kind in ("bash", "sh", "shell") for text in blocks(page, kind) for line in text.splitlines()]
    parts = [part for line in typed for part in re.split(r"&&|\|\||[|;]", line)]
    return [words for part in parts if (words := shlex.split(part, comments=True))]


@every_page
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as somebody would type them in a checkout, in a folder that may be written to."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "documentation"}
    for number, text in enumerate(blocks(page, "python"), start=1):
        exec(compile(text, f"{page.name}, python block {number}", "exec"), names)


def missing(words: list[str]) -> str | None:
    """What is not there of a command that a page shows."""
    name = Path(words[0]).name
    if name in ("bash", "sh") and len(words) > 1 and words[1].startswith("scripts/"):
        return None if (ROOT / words[1]).is_file() else words[1]
    if name != "das":
        return None
    own = words[1 : words.index("--")] if "--" in words else words[1:]
    command: click.Command = cli.das
    for word in own:
        if isinstance(command, click.Group) and not word.startswith("-"):
            if word not in command.commands:
                return word
            command = command.commands[word]
    options = {option for o in command.params for option in (*o.opts, *o.secondary_opts)} | {"--help", "--debug"}
    return next((word for word in own if word.startswith("--") and word.split("=")[0] not in options), None)


@every_page
def test_commands_exist(page: Path) -> None:
    assert [(words, missing(words)) for words in commands(page) if missing(words)] == []


@pytest.mark.parametrize("line", ["das evaluat out", "das run c --outt d", "bash scripts/dem"])
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    assert missing(line.split())


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    targets = [first or second for first, second in LINK.findall(page.read_text(encoding="utf-8"))]
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_the_readme_is_short() -> None:
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) <= LONGEST_README
