"""Names of published columns and files that R, SQL and spreadsheets take without quotes.

A name holds ASCII letters, digits and underscores, begins with a letter, is no reserved word of SQL or R, and differs
from its neighbours even where case is ignored. Labels stay as they were declared: in the rows of long tables, and in
the codebook beside them (``datapackage.json``).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from das.schema.query import Query

__all__ = [
    "GEOID",
    "NAME",
    "NOTE",
    "NUMBERS",
    "answer_columns",
    "column_name",
    "distinct",
    "file_part",
    "label_columns",
]

GEOID, NAME, NOTE = "GEOID", "NAME", "note"
"""Columns of a place's code, of its name, and of what is to be known of an interval."""
NUMBERS = ("count", "estimate", "std_dev", "low", "high")
"""Columns of numbers in a table of intervals."""
BETWEEN = "_by_"
"""Between the parts of a name; R splits a column at it: ``tidyr::separate_wider_delim(..., "_by_")``."""

_SIGNS = {"<=": "up_to", ">=": "at_least", "<": "under", ">": "over", "≤": "up_to", "≥": "at_least"}
_SIGNS |= {"+": "plus", "%": "percent", "&": "and"}
"""Signs that tell labels apart: ``65+`` and ``<65`` are not ``65``."""
_RESERVED = """
all analyse analyze and any array as asc asymmetric both break case cast check collate column constraint create
current_date current_role current_time current_timestamp current_user default deferrable desc describe distinct do else
end except false fetch for foreign from function grant group having if in inf initially intersect into lateral leading
limit localtime localtimestamp na nan next not null offset on only or order pivot placing primary qualify references
repeat returning select session_user show some summarize symmetric table then to trailing true union unique unpivot user
using variadic when where while window with
"""
"""Words that PostgreSQL (16, appendix C), DuckDB or R (``?Reserved``) keep for themselves."""


@lru_cache(maxsize=4096)
def column_name(text: str, fallback: str = "column") -> str:
    """Turn a label or a name into one that needs no quotes; ``fallback`` leads where no letter would.

    Examples
    --------
    >>> [column_name(text, "age") for text in ("white alone", "0-14", "65+", "<5", "Zürich", "end", "東京")]
    ['white_alone', 'age_0_14', 'age_65_plus', 'under_5', 'Zurich', 'age_end', 'age']
    """
    if re.match(r"\s*-\s*\d", text):
        text = f" minus {text.strip()[1:]}"
    for sign, word in _SIGNS.items():
        text = text.replace(sign, f" {word} ")
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")
    if not name:
        return fallback
    return name if name[0].isalpha() and name.lower() not in _RESERVED.split() else f"{fallback}_{name}"


def distinct(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Number names that would be the same to SQL, which ignores case.

    Examples
    --------
    >>> distinct(["a", "A", "a", "count"], taken=["count"])
    ['a', 'A_2', 'a_3', 'count_2']
    """
    wanted = list(names)
    used = {name.lower() for name in taken}
    out = []
    for name in wanted:
        number, free = 1, name
        while free.lower() in used:
            number += 1
            free = f"{name}_{number}"
        used.add(free.lower())
        out.append(free)
    return out


def file_part(query: Query) -> str:
    """Name of a query as part of a file's name.

    Examples
    --------
    >>> from das.schema.query import parse_query
    >>> from das.schema.schema import Attribute, Schema
    >>> schema = Schema((Attribute("hispanic", ("no", "yes")), Attribute("cenrace", ("white alone", "other"))))
    >>> file_part(parse_query(schema, "hispanic*cenrace"))
    'hispanic_by_cenrace'
    """
    return BETWEEN.join(column_name(part.strip(), "query") for part in query.name.split("*"))


def answer_columns(query: Query) -> list[str]:
    """Name the column of each answer by the labels that it counts.

    Examples
    --------
    >>> from das.schema.query import parse_query
    >>> from das.schema.schema import Attribute, Schema
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("0-14", "15+"))))
    >>> answer_columns(parse_query(schema, "sex * age"))
    ['f_by_age_0_14', 'f_by_age_15_plus', 'm_by_age_0_14', 'm_by_age_15_plus']
    >>> answer_columns(parse_query(schema, "total"))
    ['total']
    """
    kept = [column_name(factor.name) for factor in query.factors if not factor.is_everything]
    parts = (
        BETWEEN.join(column_name(label, name) for label, name in zip(labels, kept, strict=True))
        for labels in query.labels()
    )
    return distinct((part or "total" for part in parts), (GEOID, NAME))


def label_columns(names: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """Name the columns that hold labels of attributes or recodes, beside columns of other names.

    Examples
    --------
    >>> label_columns(["age group", "count"], NUMBERS)
    ['age_group', 'count_2']
    """
    return distinct((column_name(name) for name in names), (GEOID, NAME, *taken))
