"""The field's words: names, docstrings, messages, pages and notes use standard terms, and no coined ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

COINED = {
    "urn": "Dirichlet-multinomial",
    "urns": "Dirichlet-multinomial",
    "gathering": "overdispersion",
    "gatherings": "overdispersion",
    "crowding": "overdispersion factor",
    "toll": "limit multiplier",
    "tolls": "limit multipliers",
    "stand-in": "compensating record",
    "stand-ins": "compensating records",
    "complaint": "worker error",
    "complaints": "worker errors",
    "complain": "report",
    "complaining": "reporting errors",
    "forker": "fork server",
    "hopeless": "infeasible",
    "custody": "run identity",
    "knowledge_of": "linear estimate",
    "told_up": "send up",
    "handed_down": "send down",
    "hand_down": "send down",
    "surprise": "innovation",
    "misfit": "residual",
    "misfits": "residuals",
    "whereabouts": "origin",
    "engine": "runner, method or cluster",
    "engines": "runners, methods or clusters",
}
"""A word that was coined here, and the term of the field."""
ALLOWED = {
    ("das/plan/load.py", "engine"),  # the old name of a config key, refused with the new one
    ("das/compiled.py", "engine"),  # an attribute of a class of Numba
    ("das/storage/layout.py", "whereabouts"),  # the name of a file in the confidential folders of finished runs
    ("pipelines/workers/process_pool.py", "urn"),  # a Uniform Resource Name, by which Beam finds an environment
    ("pipelines/runners/local.py", "urn"),  # the same, and Beam's module of such names
    ("pipelines/runners/local.py", "urns"),
}
PATTERN = re.compile(
    r"(?<![\w-])(" + "|".join(map(re.escape, sorted(COINED, key=len, reverse=True))) + r")(?![\w-])", re.I
)
SPLIT = re.compile(r"(?<=[a-z])(?=[A-Z])|_")
SUFFIXES = {".py", ".md", ".j2", ".toml"}


def coined_in(text: str) -> list[str]:
    """Coined words in a text: as words, and as words of a name."""
    names = {word.lower() for name in re.findall(r"[A-Za-z_]+", text) for word in SPLIT.split(name)}
    return sorted({match.group(1).lower() for match in PATTERN.finditer(text)} | (names & COINED.keys()))


def texts() -> list[Path]:
    folders = ("das", "geography", "pipelines", "config", "docs")
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    pages = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]
    return sorted(path for path in [*inside, *pages] if path.suffix in SUFFIXES and "__pycache__" not in path.parts)


@pytest.mark.parametrize("path", texts(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_coined_word(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    found = [word for word in coined_in(path.read_text(encoding="utf-8")) if (name, word) not in ALLOWED]
    assert found == [], [f"{word}: say {COINED[word]}" for word in found]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Polya's urns", "urns"),
        ("def share_by_urns(x):", "urns"),
        ("class EngineOptions:", "engine"),
        ("each the other's stand-in", "stand-in"),
        ("row_toll = 3", "toll"),
        ("raise Complaint", "complaint"),
    ],
)
def test_a_coined_word_is_found(text: str, word: str) -> None:
    assert word in coined_in(text)


@pytest.mark.parametrize("text", ["return the turns of an engineer", "tolerance", "knowledge", "forking", "a total"])
def test_other_words_are_not(text: str) -> None:
    assert coined_in(text) == []


def test_the_glossary_has_the_terms_that_replace_them() -> None:
    glossary = (ROOT / "das" / "GLOSSARY.md").read_text(encoding="utf-8").lower()
    for term in ("compensating record", "run identity", "worker error", "innovation", "shard", "runner"):
        assert term in glossary
    lines = [line for line in glossary.splitlines() if line.startswith("| ") and not line.startswith("| term")]
    names = [line.split("|")[1].strip() for line in lines]
    assert len(names) == len(set(names)) > 50, "a term stands once"
