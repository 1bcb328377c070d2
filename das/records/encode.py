"""From raw columns to (leaf, cell, count): each row is placed in the schema and on the spine, or reported.

A report names file, row and column, and shows nothing of the record.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from das.errors import Problem
from das.plan.plan import Plan
from das.records.read import Batch
from das.schema.counts import TrueCounts
from das.schema.limits import NO_LIMIT
from geography.arrays import LONGEST_CODE
from geography.lost_zeros import lost_here, lost_there, zeros_problems
from geography.problem_list import AS_TEXT, Source, all_of, listed
from geography.spine import Spine

__all__ = ["encode"]

NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)

NUL = "\0"


def encode(batch: Batch, plan: Plan, spine: Spine, file: str) -> tuple[TrueCounts, list[Problem]]:
    """Place the rows of a batch; rows that do not fit come back as problems and are not counted."""
    source = Source(file, first_row=batch.first_row)
    problems: list[Problem] = []
    leaf = _leaves(batch.table, plan, spine, source, problems)
    settings = plan.settings.input
    if settings.cell:
        return _encode_wide(batch.table, plan, leaf, source, problems)
    codes: dict[str, NDArray[np.int64]] = {}
    for name in plan.schema.names:
        column = batch.table[settings.columns.get(name, name)]
        labels = plan.schema.attribute(name).labels
        codes[name] = _labels(column, name, labels, settings.values.get(name, {}), source, problems)
    if settings.histograms:
        count = _counts(batch.table[settings.count], settings.count, source, problems)
    else:
        count = np.ones(batch.table.num_rows, dtype=np.int64)
    good = (leaf >= 0) & (count >= 0)
    for code in codes.values():
        good &= code >= 0
    cell = plan.schema.cells({name: np.where(good, code, 0) for name, code in codes.items()})
    impossible = np.flatnonzero(good & (count > 0) & ~plan.schema.possible[cell])
    problems += _impossible(impossible, plan, cell, source)
    good[impossible] = False
    return TrueCounts.sum_of([TrueCounts(leaf[good], cell[good], count[good])], plan.schema.size), problems


def _encode_wide(
    table: pa.Table, plan: Plan, leaf: NDArray[np.int64], source: Source, problems: list[Problem]
) -> tuple[TrueCounts, list[Problem]]:
    parts = []
    for spec in plan.settings.input.cell:
        labels = [plan.schema.attribute(name).labels.index(spec.labels[name]) for name in plan.schema.names]
        cell = int(np.ravel_multi_index(labels, plan.schema.shape))
        count = _counts(table[spec.column], spec.column, source, problems)
        if spec.minus:
            taken = _counts(table[spec.minus], spec.minus, source, problems)
            both = (count >= 0) & (taken >= 0)
            name = f"{spec.column} - {spec.minus}"
            problems += listed(
                np.flatnonzero(both & (taken > count)),
                lambda i, name=name: Problem(  # type: ignore[misc]
                    source.row(i), f"{name!r} is negative", "a part cannot exceed its whole"
                ),
                source,
            )
            count = np.where(both, count - taken, -1)
        if not plan.schema.possible[cell] and (count > 0).any():
            problems += _impossible(np.flatnonzero(count > 0), plan, np.full(len(count), cell), source)
        good = (leaf >= 0) & (count >= 0)
        parts.append(TrueCounts(leaf[good], np.full(int(good.sum()), cell, dtype=np.int64), count[good]))
    return TrueCounts.sum_of(parts, plan.schema.size), problems


def _leaves(table: pa.Table, plan: Plan, spine: Spine, source: Source, problems: list[Problem]) -> NDArray[np.int64]:
    columns = []
    for name in plan.settings.input.geocode:
        column = _plain(table[name])
        if not pa.types.is_string(column.type):
            problems.append(Problem(f"{source.name}, column {name!r}", f"holds {column.type}, not text", AS_TEXT))
            return np.full(table.num_rows, -1, dtype=np.int64)
        columns.append(pc.fill_null(column, ""))
    joined = columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, "")
    encoded = joined.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    width = len(spine.leaves[0])
    texts = encoded.dictionary.to_pylist()
    # An array of text takes the memory of its longest for each, and loses a NUL at the end of any.
    codes = np.asarray(["" if len(text) > LONGEST_CODE or NUL in text else text for text in texts], dtype=np.str_)
    index = spine.locate(spine.levels[-1], codes) if len(codes) else np.zeros(0, np.int64)
    which = np.asarray(encoded.indices)
    leaf: NDArray[np.int64] = index[which] if len(codes) else np.zeros(0, np.int64)

    def describe(i: int) -> Problem:
        code = texts[which[i]]
        if not code:
            return Problem(source.row(i), "the geocode is blank", "give each record its leaf")
        fixed = plan.settings.geography.units is not None
        if fixed and len(code) != width:
            return Problem(source.row(i), f"the geocode has {len(code)} characters, not {width}", AS_TEXT)
        remedy = "add it to the geography file, or mend the record"
        return Problem(source.row(i), "the geocode is not on the spine", remedy)

    here, there = np.zeros(len(leaf), np.bool_), np.zeros(len(leaf), np.bool_)
    if (index < 0).any():
        leaves = spine.levels[-1]
        here, there = lost_here(codes, spine, leaves)[which], lost_there(codes, spine, leaves)[which]
    problems += zeros_problems(here, there, source)
    problems += listed(np.flatnonzero((leaf < 0) & ~here & ~there), describe, source)
    return leaf


def _labels(
    column: pa.ChunkedArray,
    name: str,
    labels: tuple[str, ...],
    values: Mapping[str, str],
    source: Source,
    problems: list[Problem],
) -> NDArray[np.int64]:
    """Position of each value's label, -1 where there is none; ``values`` translates the file's own codes."""
    column = _plain(column)
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        problems.append(Problem(f"{source.name}, column of {name!r}", f"holds {column.type}, not labels"))
        return np.full(len(column), -1, dtype=np.int64)
    text = pc.fill_null(column.cast(pa.string()), "")
    known = {code: labels.index(label) for code, label in values.items()} if values else {}
    known = known or {label: i for i, label in enumerate(labels)}
    position = pc.fill_null(pc.index_in(text, value_set=pa.array(list(known), type=pa.string())), -1)
    lookup = np.append(np.array(list(known.values()), dtype=np.int64), -1)
    code: NDArray[np.int64] = lookup[np.asarray(position)]

    def describe(i: int) -> Problem:
        reason = f"{name!r} has an unknown value" if text[i].as_py() else f"{name!r} is blank"
        return Problem(source.row(i), reason, all_of(list(known)))

    problems += listed(np.flatnonzero(code < 0), describe, source)
    return code


def _counts(column: pa.ChunkedArray, name: str, source: Source, problems: list[Problem]) -> NDArray[np.int64]:
    """Whole, nonnegative counts, -1 where a value is not a count; the message never shows the value."""
    column = _plain(column)
    if pa.types.is_string(column.type):
        text = pc.utf8_trim_whitespace(column)
        numeric = pc.fill_null(pc.match_substring_regex(text, r"^[+-]?[0-9]+(\.[0-9]*)?$"), False)
        column = pc.if_else(numeric, text, None).cast(pa.float64())
    elif not any(is_kind(column.type) for is_kind in NUMBERS):
        problems.append(Problem(f"{source.name}, column {name!r}", f"holds {column.type}, not counts"))
        return np.full(len(column), -1, dtype=np.int64)
    number = np.asarray(pc.fill_null(column.cast(pa.float64(), safe=False), np.nan))
    missing = ~np.isfinite(number)
    safe = np.where(missing, 0.0, number)
    faults = {
        "is missing or not a number": missing,
        "is negative": ~missing & (safe < 0),
        "is not a whole number": ~missing & (safe >= 0) & (safe != np.floor(safe)),
        "is too large to be a count": ~missing & (safe >= NO_LIMIT),
    }
    for reason, where in faults.items():
        problems += listed(
            np.flatnonzero(where),
            lambda i, reason=reason: Problem(source.row(i), f"{name!r} {reason}", "counts are whole and not negative"),  # type: ignore[misc]
            source,
        )
    bad = np.logical_or.reduce(list(faults.values()))
    return np.where(bad, -1, safe).astype(np.int64)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Undo how a column is stored: dictionaries, and the other ways to hold text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_large_string(kind):
        column = column.cast(pa.string())
    return column


def _impossible(positions: NDArray[np.int64], plan: Plan, cell: NDArray[np.int64], source: Source) -> list[Problem]:
    def describe(i: int) -> Problem:
        codes = plan.schema.labels_of(cell[i : i + 1])
        labels = {name: plan.schema.attribute(name).labels[int(code[0])] for name, code in codes.items()}
        covering = [
            zero.name
            for zero in plan.schema.structural_zeros
            if all(labels[name] in allowed for name, allowed in zero.labels.items())
        ]
        return Problem(
            source.row(i),
            f"lies in a cell that structural zero {covering[0]!r} excludes",
            "mend the record or the zero",
        )

    return listed(positions, describe, source)
