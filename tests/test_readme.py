"""The README does not lie: its Python runs, and its commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from das import cli

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(README.read_text(encoding="utf-8")) if kind == language]


def commands() -> list[list[str]]:
    """Lines that a person types: those behind a ``$`` in console blocks, all in bash blocks."""
    typed = [line.removeprefix("$ ") for text in blocks("console") for line in text.splitlines() if line[:2] == "$ "]
    typed += [line for kind in ("bash", "sh", "shell") for text in blocks(kind) for line in text.splitlines()]
    parts = [part for line in typed for part in re.split(r"&&|\|\||[|;]", line)]
    return [words for part in parts if (words := shlex.split(part, comments=True))]


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as somebody would type them in a checkout, in a folder that may be written to."""
    (tmp_path / "config").symlink_to(README.parent / "config")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "readme"}
    for number, text in enumerate(blocks("python"), start=1):
        exec(compile(text, f"README.md, python block {number}", "exec"), names)


def test_commands_exist() -> None:
    for words in commands():
        name = Path(words[0]).name
        if name == "das" and len(words) > 1 and not words[1].startswith("-"):
            assert words[1] in cli.das.commands, " ".join(words)
            options = {option for o in cli.das.commands[words[1]].params for option in (*o.opts, *o.secondary_opts)}
            own = words[: words.index("--")] if "--" in words else words
            assert {word.split("=")[0] for word in own if word.startswith("--")} <= options | {"--help", "--debug"}
        elif name in ("bash", "sh") and len(words) > 1 and words[1].startswith("scripts/"):
            assert (README.parent / words[1]).is_file(), " ".join(words)
