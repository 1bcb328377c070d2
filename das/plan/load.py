"""TOML to plan: the only module that knows file syntax, and it reports everything that is wrong at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, TypeAdapter, ValidationError

from das.errors import ConfigError, Problem
from das.plan import presets
from das.plan.plan import Plan
from das.plan.resolve import Problems, resolve
from das.plan.settings import (
    NAME,
    TITLE,
    Settings,
)
from das.plan.toml_file import read_toml
from das.plan.tree_of_counts import tree_of
from geography.problem_list import nearest

__all__ = ["load", "to_toml"]


def load(path: str | Path) -> Plan:
    """Read a config, or the name of a preset, and resolve it into a plan; no record is read.

    Raises
    ------
    ConfigError
        With one problem per mistake, each naming its key and, for an unknown one, the nearest that exists.
    """
    name = str(path)
    if name in presets.names() and not Path(path).exists():
        content, source = _preset_content(name), presets.path(name)
    else:
        content, source = _read(Path(path)), Path(path).resolve()
    problems = Problems(source.name)
    _merge_presets(content, problems)
    resolved = resolve(_sound_sections(content, problems), problems)
    if problems.found:
        raise ConfigError(problems.found)
    plan = Plan(settings=Settings.model_validate(content), source=source, **resolved)
    if plan.mechanism_stage.sampler:
        tree_of(plan)  # refuses what is not a tree of counts
    return plan


def _preset_content(name: str) -> dict[str, Any]:
    """Make a config of a preset alone, for looking at: the files it names are nowhere, so it cannot run."""
    shipped = presets.read(name)
    return {
        "release": {"name": shipped["name"], "product": shipped["source"], "with": shipped.get("with", [])},
        "input": {"microdata": "records.csv"},
        "geography": {
            "levels": [{"name": level} for level in shipped["strategy"]["geolevels"]],
            "crosswalk": "geo.csv",
        },
        **{
            section: shipped[section]
            for section in ("privacy", "schema", "strategy", "invariant", "estimate")
            if section in shipped
        },
    }


def _read(path: Path) -> dict[str, Any]:
    preset = nearest(str(path), presets.names())
    remedy = preset if preset.startswith("did you mean") else "`das init DIR` writes a starter"
    return read_toml(path, missing=Problem(str(path), "there is no such file, and no such preset", remedy))


def _merge_presets(content: dict[str, Any], problems: Problems) -> None:
    """Let ``preset`` stand for the tables it names; a key written beside it wins."""
    for section in ("schema", "strategy"):
        own = content.get(section)
        if not isinstance(own, dict) or own.get("preset") is None:
            continue
        name = own["preset"]
        if name not in presets.names():
            problems.add(f"{section}.preset", f"there is no preset {name!r}", nearest(str(name), presets.names()))
            continue
        content[section] = _over(presets.read(name).get(section, {}), own)
        if section == "strategy":
            estimate = content.get("estimate", {})
            if isinstance(estimate, dict):
                content["estimate"] = {**presets.read(name).get("estimate", {}), **estimate}


def _over(shipped: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What is written beside a preset wins; own geolevels take the preset's queries for the levels that are here."""
    merged = {**shipped, **own}
    geolevels, queries = own.get("geolevels"), own.get("queries", {})
    if isinstance(geolevels, dict) and isinstance(queries, dict):
        here = {level: table for level, table in shipped["queries"].items() if level in geolevels}
        merged["queries"] = here | queries
        passes = shipped.get("passes", {})
        merged["passes"] = {level: order for level, order in passes.items() if level in (*geolevels, "all")}
    return merged


def _sound_sections(content: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """Note what is wrong with the shape of each section; return those with which one can go on looking."""
    try:
        Settings.model_validate(content)
    except ValidationError as error:
        for item in error.errors():
            loc = item["loc"]
            key = ".".join(str(part + 1) if isinstance(part, int) else str(part) for part in loc)
            if item["type"] == "extra_forbidden":
                known = _known_keys(loc[:-1])
                problems.add(key, "unknown key", _RENAMED.get(key) or nearest(str(loc[-1]), known))
            elif item["type"] == "missing":
                problems.add(key, "is missing", _REMEDY.get(str(loc[0]), ""))
            elif item["type"] == "string_pattern_mismatch":
                problems.add(key, _SPELLINGS.get(item["ctx"]["pattern"], item["msg"]))
            else:
                problems.add(key, _SHAPES.get(item["type"]) or item["msg"].removeprefix("Value error, "))
    sections: dict[str, Any] = {f.alias or name: f.annotation for name, f in Settings.model_fields.items()}
    return {
        name: TypeAdapter(sections[name]).validate_python(value)
        for name, value in content.items()
        if name in sections and name not in problems.faulty
    }


_REMEDY = {
    "release": 'give the release a name: [release] name = "..."',
    "privacy": 'say the framework and its budget: [privacy] framework = "zcdp", rho = "1/2"',
    "geography": "say the levels of the spine and the file that lists its leaves",
    "schema": "list the attributes, or name a preset",
    "strategy": "give the shares of the budget, or name a preset",
}


_SHAPES = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "mapping_type": "must be a table",
    "model_type": "must be a table",
    "string_type": "must be text in quotes",
    "tuple_type": "must be a list",
}
"""Kinds of values that a key takes, in the words of TOML instead of the validator's."""


_SPELLINGS = {
    NAME: "must be a name of letters, digits and underscores that begins with a letter",
    TITLE: "must be letters, digits, blanks, dots, hyphens and underscores, and begin with a letter or digit",
}
"""What a name may be spelt with."""


_RENAMED = {
    "estimate.engine": "it is called `method` now",
    "estimate.expect": 'it is called `prior` now: "sharing", or "none" where it said "nothing"',
    "output.noisy_measurements": "measurements are always written; leave this key out",
}
"""Keys of earlier versions, and what to write instead."""


def _known_keys(loc: tuple[int | str, ...]) -> list[str]:
    """Walk the settings classes to the section at ``loc`` and list what it accepts."""
    model: type[BaseModel] = Settings
    for part in loc:
        if isinstance(part, int):
            continue
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        if part not in fields:
            return []
        model = next(_models_in(fields[part].annotation), model)
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def to_toml(settings: Settings) -> str:
    """Write resolved settings as TOML: what a release folder keeps of its config.

    Paths stay as they were written, so the text names no folder of the machine that ran it.
    """
    return tomli_w.dumps(settings.model_dump(mode="json", by_alias=True, exclude_none=True))
