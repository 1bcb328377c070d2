"""TOML to plan: the only module that knows file syntax, and it reports everything that is wrong at once."""

from __future__ import annotations

import re
import tomllib
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
from das.plan.tree_of_counts import tree_of
from geography.problem_list import nearest

__all__ = ["load", "to_toml"]

CONFIG_BYTES = 16 << 20
"""What a config may hold; the demographic presets take a hundredth of it."""

DEEPEST = 50
"""How deeply the lists and tables of a config may nest; its settings need five levels."""

_STRINGS = re.compile(
    r'"{3}(?:\\.|[^\\])*?"{3}'  # a long string with escapes
    r"|'{3}.*?'{3}"  # a long string without
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*",  # a comment
    re.DOTALL,
)


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
    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_BYTES + 1)
        if len(content) > CONFIG_BYTES:
            raise ConfigError(Problem(str(path), "is too long to be a config", "name the config, not a file of data"))
        text = content.decode()
        if _depth(text) > DEEPEST:
            raise RecursionError
        return tomllib.loads(text)
    except FileNotFoundError:
        preset = nearest(str(path), presets.names())
        remedy = preset if preset.startswith("did you mean") else "`das init DIR` writes a starter"
        raise ConfigError(Problem(str(path), "there is no such file, and no such preset", remedy)) from None
    except IsADirectoryError:
        raise ConfigError(Problem(str(path), "is a folder", "name the config file in it")) from None
    except OSError as error:
        raise ConfigError(Problem(str(path), f"cannot be read ({error.strerror})")) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        reason = f"is not valid TOML: line {line} is not UTF-8 text"
        raise ConfigError(Problem(path.name, reason, "save it as UTF-8")) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(Problem(path.name, f"is not valid TOML: {error}", _decimal_comma(text, str(error)))) from None
    except ValueError:  # the text is TOML, but Python reads no number of thousands of digits, nor every date
        reason = "holds a number or a date that cannot be read"
        raise ConfigError(Problem(path.name, reason, "look for one of very many digits")) from None
    except RecursionError:
        raise ConfigError(Problem(path.name, "nests tables or lists too deeply", "write them side by side")) from None


def _decimal_comma(text: str, error: str) -> str:
    """Return the remedy where the line that an error names has a number such as 0,5; nothing otherwise.

    Examples
    --------
    >>> _decimal_comma("epsilon = 0,5", "Expected newline (at line 1, column 12)")
    'a decimal comma? write a fraction in quotes, for example "1/2"'
    """
    found = re.search(r"at line (\d+)", error)
    line = text.splitlines()[int(found[1]) - 1] if found else ""
    comma = re.search(r"=\s*\d+,\d", line)
    return 'a decimal comma? write a fraction in quotes, for example "1/2"' if comma else ""


def _depth(text: str) -> int:
    """How deeply brackets nest outside of strings and comments.

    The parser descends into each; at the interpreter's own limit a destructor may fail beside it, on standard error.
    """
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", _STRINGS.sub("", text)):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


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
