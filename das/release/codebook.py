"""The codebook of a release: a Frictionless data package that says what every column of tables and records means.

``datapackage.json`` follows Data Package 2.0 (https://datapackage.org, "Data Package", "Data Resource", "Table
Dialect", "Table Schema"): a resource for each table, with its fields, their types, labels and codes, and its key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from das.plan.plan import Plan
from das.release.microdata import codes_of
from das.release.table_tasks import INTERVALS, table_tasks
from das.release.tables import label_columns_of
from das.schema.column_names import GEOID, NAME, NOTE, answer_columns
from das.schema.query import Query, parse_query
from das.storage.layout import ReleaseFolder

__all__ = ["data_package"]

PROFILE = "https://datapackage.org/profiles/2.0/datapackage.json"
NUMBERS = {
    "count": "published count",
    "estimate": "linear estimate: not biased, may be negative",
    "std_dev": "standard deviation of the estimate",
    "low": "lower end of the 95 % interval of the true count; the published count may lie outside",
    "high": "upper end of the 95 % interval of the true count; the published count may lie outside",
}
RECORDS = {
    "SCHEMA_TYPE_CODE": "kind of file",
    "SCHEMA_BUILD_ID": "version of the layout",
    "TABBLKST": "state",
    "TABBLKCOU": "county",
    "TABTRACTCE": "tract",
    "TABBLKGRPCE": "block group",
    "TABBLK": "block",
    "EPNUM": "number of the record within its block",
    "RTYPE": "3: household, 5: group quarters",
}
PLACE_OF_RECORD = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK")
Described = Mapping[str, Mapping[str, Any]]
"""Column to what the codebook says of it."""
TYPES = {pa.string(): "string", pa.int64(): "integer", pa.float64(): "number"}


def data_package(plan: Plan, release: ReleaseFolder) -> dict[str, Any]:
    """Describe the tables and records of a release; reads the headers of its Parquet files."""
    settings = plan.settings
    unit = settings.privacy.unit
    resources = [*_tables(plan, release, unit), *_areas(plan, release), *_records(plan, release, unit)]
    return {
        "$schema": PROFILE,
        "name": re.sub(r"[^a-z0-9._-]+", "-", plan.name.lower()),
        "title": plan.name,
        "description": "Protected counts: noise was added, no row is a person. privacy.html says what that promises, "
        "and the tables of intervals how far a count may be from the truth.",
        "resources": resources,
    }


def _tables(plan: Plan, release: ReleaseFolder, unit: str) -> Iterator[dict[str, Any]]:
    for task in table_tasks(plan):
        query, name = parse_query(plan.schema, task.query), task.file_name(plan)
        path = release.tables / f"{name}.parquet"
        if path.exists():
            described = _places(task.place) | _answers(query, unit)
            title = f"{query.name} by {task.place}"
            yield _resource(plan, release, path, title, described, [GEOID])
        beside = release.tables / f"{name}{INTERVALS}.parquet"
        if beside.exists():
            described = _places(task.place) | _labels(query)
            described |= {
                column: {"description": words, "unit": unit} | ({} if column != "count" else _WHOLE)
                for column, words in NUMBERS.items()
            }
            described[NOTE] = {"description": "what no interval of this table covers"}
            key = [GEOID, *label_columns_of(query)]
            yield _resource(plan, release, beside, f"{query.name} by {task.place}, with intervals", described, key)


_WHOLE = {"constraints": {"required": True, "minimum": 0}}


def _places(place: str) -> dict[str, dict[str, Any]]:
    code = f"code of the {place}: text, of which leading zeros are a part"
    return {
        GEOID: {"description": code, "constraints": {"required": True}},
        NAME: {"description": f"what the {place} is called"},
    }


def _answers(query: Query, unit: str) -> dict[str, dict[str, Any]]:
    kept = [factor.name for factor in query.factors if not factor.is_everything]
    out = {}
    for column, labels in zip(answer_columns(query), query.labels(), strict=True):
        title = "; ".join(f"{name}: {label}" for name, label in zip(kept, labels, strict=True)) or "total"
        out[column] = {"title": title, "description": "published count", "unit": unit} | _WHOLE
    return out


def _labels(query: Query) -> dict[str, dict[str, Any]]:
    kept = [factor for factor in query.factors if not factor.is_everything]
    return {
        column: {
            "title": factor.name,
            "description": f"label of {factor.name}",
            "constraints": {"required": True, "enum": list(factor.labels)},
        }
        for column, factor in zip(label_columns_of(query), kept, strict=True)
    }


def _areas(plan: Plan, release: ReleaseFolder) -> Iterator[dict[str, Any]]:
    for area in plan.settings.geography.areas:
        path = release.area_members / f"{area.name}.parquet"
        if path.exists():
            described = {
                "area": {"description": f"code of the {area.name}", "constraints": {"required": True}},
                "geocode": {"description": f"code of a {plan.levels[-1]} in it", "constraints": {"required": True}},
            }
            yield _resource(plan, release, path, f"members of each {area.name}", described, ["area", "geocode"])


def _records(plan: Plan, release: ReleaseFolder, unit: str) -> Iterator[dict[str, Any]]:
    path = release.microdata / "records.parquet"
    if not path.exists():
        return
    described: dict[str, dict[str, Any]] = _places(plan.levels[-1])
    described |= {column: {"description": words} for column, words in RECORDS.items()}
    for column, (attribute, codes) in codes_of(plan).items():
        described[column] = {
            "title": attribute,
            "description": f"code of {attribute}",
            "constraints": {"required": True, "enum": list(codes)},
            "categories": [{"value": code, "label": label} for code, label in codes.items()],
        }
    key = [*PLACE_OF_RECORD, "EPNUM"]
    columns = set(pq.read_schema(path).names)
    title = f"protected records, one row for each {unit} that is counted"
    yield _resource(plan, release, path, title, described, key if set(key) <= columns else [])


def _resource(
    plan: Plan,
    release: ReleaseFolder,
    path: Path,
    title: str,
    described: Mapping[str, Mapping[str, Any]],
    key: list[str],
) -> dict[str, Any]:
    """Describe one file: its CSV form, if it has one in which codes are plain; otherwise its Parquet form."""
    text = path.with_suffix(".csv")
    is_text = text.exists() and plan.settings.output.geoid != "excel"
    is_record = path.parent == release.microdata
    fields = [
        {"name": field.name, "type": TYPES[field.type], **described[field.name]} for field in pq.read_schema(path)
    ]
    out: dict[str, Any] = {
        "name": path.stem.lower() if path.parent != release.area_members else f"areas-{path.stem.lower()}",
        "type": "table",
        "title": title,
        "path": (text if is_text else path).relative_to(release.path).as_posix(),
        "format": "csv" if is_text else "parquet",
        "mediatype": "text/csv" if is_text else "application/vnd.apache.parquet",
    }
    if is_text:
        out["encoding"] = "utf-8"
        out["dialect"] = {"delimiter": "|", "commentChar": "#"} if is_record else {"delimiter": ","}
    return out | {"schema": {"fields": fields, **({"primaryKey": key} if key else {})}}
