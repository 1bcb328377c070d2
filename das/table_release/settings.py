"""The config of `das table`: frozen sections that know their keys and refuse every other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from das.errors import ConfigError, Problem
from das.plan.settings import Label
from das.synthesis.settings import Delta, Exact, InputSection, Section, read_sections
from geography.problem_list import nearest

__all__ = ["MECHANISM_NAMES", "BoundSection", "InvariantSection", "SecretSection", "TableSettings", "read_settings"]

MECHANISM_NAMES = ("gaussian", "k-norm", "conditioning")
RESERVED = ("count", "nonnegative")
Labels = dict[str, str | list[str]]


class TableInput(InputSection):
    """Which file holds the table; with `count` each row is a cell, otherwise each row is a record."""

    count: str = ""


class PrivacySection(Section):
    """The promise under `semi`: rho, or epsilon, or epsilon and delta; a(t), where it is not known."""

    rho: Exact | None = None
    epsilon: Exact | None = None
    delta: Delta | None = None
    adjacency: int | None = Field(default=None, ge=1)


class MechanismSection(Section):
    """How the table is released, and whether the nearest non-negative table is written beside it."""

    name: Literal["gaussian", "k-norm", "conditioning"]
    nonnegative: bool = True


class InvariantSection(Section):
    """A published margin (`columns`), or a published total of some cells (`labels`); counts are taken from the file."""

    columns: list[str] | None = None
    labels: Labels | None = None
    counts: list[Any] | int | None = None


class BoundSection(Section):
    """A public inequality about a total of some cells."""

    labels: Labels
    least: int = Field(default=0, ge=0)
    most: int | None = Field(default=None, ge=0)


class ZeroSection(Section):
    """Cells in which nobody can be."""

    labels: Labels


class SecretSection(Section):
    """A pair of cells: whether a record is in the one or in the other."""

    before: dict[str, str]
    after: dict[str, str]


class TableSettings(Section):
    """A whole config."""

    name: str
    input: TableInput
    privacy: PrivacySection
    mechanism: MechanismSection
    columns: dict[Label, list[Label]] = Field(min_length=1)
    invariant: list[InvariantSection] = Field(default_factory=list)
    bound: list[BoundSection] = Field(default_factory=list)
    zero: list[ZeroSection] = Field(default_factory=list)
    secret: list[SecretSection] = Field(default_factory=list)


def read_settings(path: Path) -> TableSettings:
    """Read a config; every mistake is named at once.

    Raises
    ------
    ConfigError
        The file is missing, is not TOML, or has keys, names or values that do not fit.
    """
    settings = read_sections(path, TableSettings, "see docs/table.md")
    problems = [Problem(f"{path.name}: {where}", reason, remedy) for where, reason, remedy in _mistakes(settings)]
    if problems:
        raise ConfigError(problems)
    return settings


def _mistakes(settings: TableSettings) -> list[tuple[str, str, str]]:
    """Names and labels that do not exist, sections that say nothing or two things, a budget of the wrong form."""
    found: list[tuple[str, str, str]] = []
    columns, privacy = settings.columns, settings.privacy
    for name, labels in columns.items():
        if not labels or len(set(labels)) < len(labels):
            found.append((f"columns.{name}", "has no labels, or one twice", "list each label once"))
        if name in RESERVED:
            found.append((f"columns.{name}", "is a name of the released table's own columns", "rename the column"))
    if settings.input.count in columns:
        found.append(("input.count", "is one of the columns", "name the column that holds the counts"))
    if (privacy.rho is None) == (privacy.epsilon is None) or (privacy.rho is not None and privacy.delta is not None):
        found.append(("privacy", "a budget is rho, or epsilon, or epsilon and delta", "give one of these"))
    sections: list[tuple[str, Labels]] = []
    for number, each in enumerate(settings.invariant, start=1):
        where = f"invariant.{number}"
        if (each.columns is None) == (each.labels is None):
            found.append((where, "needs columns (a margin) or labels (a total)", "give one of the two"))
        for column in each.columns or ():
            if column not in columns:
                found.append((where, f"{column!r} is not a column", nearest(column, list(columns))))
        if each.labels is not None:
            sections.append((where, each.labels))
            if each.counts is not None and not isinstance(each.counts, int):
                found.append((where, "counts is not a whole number", "a total has one count"))
    sections += [(f"bound.{number}", each.labels) for number, each in enumerate(settings.bound, start=1)]
    sections += [(f"zero.{number}", each.labels) for number, each in enumerate(settings.zero, start=1)]
    for number, pair in enumerate(settings.secret, start=1):
        for side in (pair.before, pair.after):
            sections.append((f"secret.{number}", dict(side)))
            if set(side) != set(columns):
                found.append((f"secret.{number}", "does not name one label of each column", "name one cell"))
    for number, bound in enumerate(settings.bound, start=1):
        if bound.most is not None and bound.most < bound.least:
            found.append((f"bound.{number}", "its least is above its most", "swap or correct them"))
    for where, named in sections:
        for column, given in named.items():
            if column not in columns:
                found.append((where, f"{column!r} is not a column", nearest(column, list(columns))))
                continue
            for label in [given] if isinstance(given, str) else given:
                if label not in columns[column]:
                    found.append((where, f"{label!r} is not a label of {column!r}", nearest(label, columns[column])))
    return found
