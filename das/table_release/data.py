"""The table of a config: its cells and labels, its counts from the file, and the public facts about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from das.accounting.small_table.dataspace import TableFacts
from das.errors import ConfigError, InputError, Problem
from das.exact import digest_of
from das.records.read import read_columns
from das.table_release.settings import TableSettings

__all__ = ["LARGEST_TABLE", "ConfidentialTable", "Fact", "cell_of", "read_table", "selected"]

LARGEST_TABLE = 1_000
"""Cells of a table: beyond it the lattice of moves is too large for exact draws."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One published equality: what it is about, the cells it adds up, and its value."""

    about: str
    row: tuple[int, ...]
    value: int


@dataclass(frozen=True)
class ConfidentialTable:
    """A table as it was read; only the facts and the labels are public."""

    labels: dict[str, list[str]]
    published: tuple[Fact, ...]
    facts: TableFacts
    counts: NDArray[np.int64] = field(repr=False)

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The labels of each cell, the last column fastest."""
        return list(product(*self.labels.values()))

    @property
    def facts_digest(self) -> str:
        """A digest of everything public about the table."""
        return digest_of(self.facts_json())

    def facts_json(self) -> dict[str, Any]:
        """Return the public facts t in words."""
        cells = self.cells
        return {
            "columns": self.labels,
            "records": self.facts.records,
            "published": [{"about": fact.about, "count": fact.value} for fact in self.published],
            "bounds": [
                {"cells": ["*".join(cells[c]) for c in np.flatnonzero(row)], "least": low, "most": high}
                for row, low, high in self.facts.bounds
            ],
            "zeros": ["*".join(cells[cell]) for cell in sorted(self.facts.zeros)],
        }


def selected(labels: Mapping[str, list[str]], named: Mapping[str, str | list[str]]) -> NDArray[np.bool_]:
    """Return which cells have the named labels.

    Examples
    --------
    >>> selected({"sex": ["f", "m"], "age": ["young", "old"]}, {"sex": "f", "age": ["old"]}).tolist()
    [False, True, False, False]
    """
    mask = np.ones([len(each) for each in labels.values()], dtype=bool)
    for axis, (column, known) in enumerate(labels.items()):
        if column in named:
            given = named[column]
            wanted = [given] if isinstance(given, str) else given
            shape = [-1 if other == axis else 1 for other in range(len(labels))]
            mask &= np.isin(known, wanted).reshape(shape)
    return mask.reshape(-1)


def cell_of(labels: Mapping[str, list[str]], named: Mapping[str, str]) -> int:
    """Return the index of one cell."""
    return int(np.flatnonzero(selected(labels, dict(named)))[0])


def read_table(settings: TableSettings, file: Path) -> ConfidentialTable:
    """Read the counts, and make the public facts of them as the config declares.

    Raises
    ------
    InputError
        The file does not hold the table, or contradicts what the config declares about it.
    ConfigError
        The table is too large.
    """
    labels = {name: list(each) for name, each in settings.columns.items()}
    size = int(np.prod([len(each) for each in labels.values()]))
    if size > LARGEST_TABLE:
        reason = f"the table has {size:,} cells, and exact draws are practical up to {LARGEST_TABLE:,}"
        raise ConfigError(Problem("columns", reason, "use `das synth` for larger domains, or a coarser table"))
    counts = _counts(settings, file, labels)
    published, problems = _published(settings, labels, counts)
    bounds: list[tuple[tuple[int, ...], int, int]] = []
    for number, each in enumerate(settings.bound, start=1):
        row = selected(labels, each.labels).astype(int)
        most = int(counts.sum()) if each.most is None else each.most
        if not each.least <= int(row @ counts) <= most:
            problems.append(Problem(f"bound.{number}", "does not hold in the file", "correct the one or the other"))
        bounds.append((tuple(row.tolist()), each.least, most))
    zeros: set[int] = set()
    for number, zero in enumerate(settings.zero, start=1):
        mask = selected(labels, zero.labels)
        if counts[mask].any():
            problems.append(Problem(f"zero.{number}", "somebody is in these cells of the file", "correct it"))
        zeros |= set(np.flatnonzero(mask).tolist())
    if problems:
        raise InputError(problems)
    facts = TableFacts(
        cells=size,
        invariants=tuple(fact.row for fact in published),
        values=tuple(fact.value for fact in published),
        records=int(counts.sum()),
        bounds=tuple(bounds),
        zeros=frozenset(zeros),
    )
    return ConfidentialTable(labels, published, facts, counts)


def _counts(settings: TableSettings, file: Path, labels: dict[str, list[str]]) -> NDArray[np.int64]:
    """Add the rows up by cell; what does not fit is named by its number of rows, and not shown."""
    names = [*labels, *([settings.input.count] if settings.input.count else [])]
    batches = [batch.table for batch in read_columns(file, names)]
    table = pa.concat_tables(batches) if batches else None
    if table is None or not table.num_rows:
        raise InputError(Problem(file.name, "holds no rows"))
    problems: list[Problem] = []
    cell = np.zeros(table.num_rows, dtype=np.int64)
    for name, known in labels.items():
        codes = pc.index_in(pc.cast(table[name], pa.string()), pa.array(known, pa.string()))
        code = pc.fill_null(codes, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        if (code < 0).any():
            problems.append(Problem(file.name, f"some values of {name!r} are no labels of it", "complete its labels"))
        cell = cell * len(known) + np.maximum(code, 0)
    size = int(np.prod([len(each) for each in labels.values()]))
    weights = np.ones(table.num_rows, dtype=np.int64)
    if settings.input.count:
        text = pc.utf8_trim_whitespace(pc.cast(table[settings.input.count], pa.string()))
        good = pc.fill_null(pc.match_substring_regex(text, r"^\d{1,9}$"), False).to_numpy(zero_copy_only=False)
        if not good.all():
            reason = f"some values of {settings.input.count!r} are not counts"
            problems.append(Problem(file.name, reason, "write whole numbers from 0 to 999,999,999"))
        else:
            weights = pc.cast(text, pa.int64()).to_numpy(zero_copy_only=False)
        if len(np.unique(cell)) < len(cell) and not problems:
            problems.append(Problem(file.name, "a cell stands in two rows", "add its counts up, one row for each cell"))
    if problems:
        raise InputError(problems)
    counts: NDArray[np.int64] = np.bincount(cell, weights=weights, minlength=size).astype(np.int64)
    if not counts.any():
        raise InputError(Problem(file.name, "holds nobody"))
    return counts


def _published(
    settings: TableSettings, labels: dict[str, list[str]], counts: NDArray[np.int64]
) -> tuple[tuple[Fact, ...], list[Problem]]:
    facts: list[Fact] = []
    problems: list[Problem] = []
    for number, each in enumerate(settings.invariant, start=1):
        if each.labels is not None:
            selections = [each.labels]
        else:
            chosen = each.columns or []
            selections = [
                dict(zip(chosen, values, strict=True)) for values in product(*(labels[name] for name in chosen))
            ]
        made = []
        for named in selections:
            row = selected(labels, named).astype(int)
            about = ", ".join(
                f"{key} = {' or '.join([of] if isinstance(of, str) else of)}" for key, of in named.items()
            )
            made.append(Fact(about or "everybody", tuple(row.tolist()), int(row @ counts)))
        if each.counts is not None:
            shape = [len(labels[name]) for name in each.columns or []]
            if not _same(each.counts, [fact.value for fact in made], shape):
                reason = "the declared counts are not those of the file"
                problems.append(Problem(f"invariant.{number}", reason, "correct them, or leave them out"))
        facts += made
    return tuple(facts), problems


def _same(declared: Any, found: list[int], shape: list[int]) -> bool:
    try:
        given = np.array(declared)
    except ValueError:
        return False
    return given.dtype.kind in "iu" and given.shape == tuple(shape) and given.reshape(-1).tolist() == found
