"""TOML to plan: the only module that knows file syntax, and it reports everything that is wrong at once."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, TypeAdapter, ValidationError

from das import presets
from das.constraint import Bound, Invariant
from das.errors import ConfigError, Problem
from das.plan import Measurement, Plan, mechanism_for
from das.query import Neighbours, Query, parse_query
from das.schema import Attribute, Schema, SchemaError, StructuralZero
from das.settings import (
    BoundSettings,
    InputSettings,
    InvariantSettings,
    PrivacySettings,
    SchemaSettings,
    Settings,
    StrategySettings,
)
from geography.findings import nearest

__all__ = ["load", "to_toml"]

T = TypeVar("T")


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
    problems = _Problems(source.name)
    _merge_presets(content, problems)
    resolved = _resolve(_sound_sections(content, problems), problems)
    if problems.found:
        raise ConfigError(problems.found)
    return Plan(settings=Settings.model_validate(content), source=source, **resolved)


def _preset_content(name: str) -> dict[str, Any]:
    """Make a config of a preset alone, for looking at: the files it names are nowhere, so it cannot run."""
    shipped = presets.read(name)
    return {
        "release": {"name": shipped["name"], "product": shipped["source"]},
        "input": {"microdata": "records.csv"},
        "geography": {
            "levels": [{"name": level} for level in shipped["strategy"]["geolevels"]],
            "crosswalk": "geo.csv",
        },
        **{section: shipped[section] for section in ("privacy", "schema", "strategy", "invariant")},
    }


class _Problems:
    """Collects what is wrong in one file, so that a user mends a config once and not ten times."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Problem] = []
        self.faulty: set[str] = set()  # sections in which something is wrong

    def add(self, key: str, reason: str, remedy: str = "") -> None:
        self.faulty.add(key.split(".")[0])
        self.found.append(Problem(f"{self.file}, {key}", reason, remedy))

    def attempt(self, key: str, build: Callable[[], T]) -> T | None:
        try:
            return build()
        except (SchemaError, ValueError) as error:
            self.add(key, str(error))
            return None


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(Problem(str(path), "there is no such file", "`das init DIR` writes a starter")) from None
    except IsADirectoryError:
        raise ConfigError(Problem(str(path), "is a folder", "name the config file in it")) from None
    except OSError as error:
        raise ConfigError(Problem(str(path), f"cannot be read ({error.strerror})")) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(Problem(path.name, f"is not valid TOML: {error}")) from None


def _merge_presets(content: dict[str, Any], problems: _Problems) -> None:
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


def _over(shipped: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What is written beside a preset wins; own geolevels take the preset's queries for the levels that are here."""
    merged = {**shipped, **own}
    geolevels, queries = own.get("geolevels"), own.get("queries", {})
    if isinstance(geolevels, dict) and isinstance(queries, dict):
        here = {level: table for level, table in shipped["queries"].items() if level in geolevels}
        merged["queries"] = here | queries
    return merged


def _sound_sections(content: Mapping[str, Any], problems: _Problems) -> dict[str, Any]:
    """Note what is wrong with the shape of each section; return those with which one can go on looking."""
    try:
        Settings.model_validate(content)
    except ValidationError as error:
        for item in error.errors():
            loc = item["loc"]
            key = ".".join(str(part + 1) if isinstance(part, int) else str(part) for part in loc)
            if item["type"] == "extra_forbidden":
                known = _known_keys(loc[:-1])
                problems.add(key, "unknown key", nearest(str(loc[-1]), known))
            elif item["type"] == "missing":
                problems.add(key, "is missing", _REMEDY.get(str(loc[0]), ""))
            else:
                problems.add(key, item["msg"].removeprefix("Value error, "))
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


def _resolve(sound: Mapping[str, Any], problems: _Problems) -> dict[str, Any]:
    """Resolve what the sound sections say; what hangs on a faulty one is looked at when that is mended."""
    schema = _schema(sound["schema"], problems) if "schema" in sound else None
    levels = tuple(level.name for level in sound["geography"].levels) if "geography" in sound else ()
    shares = _shares(sound["strategy"], levels, problems) if levels and "strategy" in sound else {}
    if schema is None:
        return {}
    if "input" in sound:
        _check_columns(sound["input"], schema, problems)
    queries: dict[str, Query | None] = {}

    def query(key: str, name: str) -> Query | None:
        if name not in queries:
            queries[name] = problems.attempt(key, lambda: parse_query(schema, name))
        return queries[name]

    measurements = _measurements(sound.get("privacy"), shares, query, problems)
    facts = _Facts(levels, query, problems)
    for index, entry in enumerate(sound.get("invariant", ())):
        facts.add(f"invariant.{index + 1}", entry, "=")
    for index, entry in enumerate(sound.get("bound", ())):
        facts.add(f"bound.{index + 1}", entry, entry.sense)
    if "input" in sound and "privacy" in sound and sound["input"].budget is not None:
        total, needed = sound["input"].budget, sound["privacy"].budget
        if total < needed:
            problems.add(
                "input.budget", f"{total} is less than this release spends, {needed}", "raise one, or lower the other"
            )
    if facts.invariants and "privacy" in sound and sound["privacy"].neighbours is Neighbours.ADD_REMOVE:
        reason = (
            "'add-remove' promises nothing beside an invariant: data sets that agree on it never differ by one record"
        )
        problems.add("privacy.neighbours", reason, 'use neighbours = "replace", or publish nothing exactly')
    for index, name in enumerate(sound["output"].tables or () if "output" in sound else ()):
        query(f"output.tables.{index + 1}", name)
    return {
        "schema": schema,
        "levels": levels,
        "measurements": tuple(measurements),
        "invariants": tuple(facts.invariants),
        "bounds": tuple(facts.bounds),
    }


def _schema(settings: SchemaSettings, problems: _Problems) -> Schema | None:
    for index, a in enumerate(settings.attribute):
        key = f"schema.attribute.{index + 1}"
        for name, groups in a.recodes.items():
            problems.attempt(f"{key}.recodes.{name}", partial(Attribute, a.name, a.labels, {name: groups}))
    if "schema" in problems.faulty:
        return None
    return problems.attempt(
        "schema",
        lambda: Schema(
            tuple(Attribute(a.name, a.labels, a.recodes) for a in settings.attribute),
            tuple(StructuralZero(z.name, z.labels) for z in settings.structural_zero),
        ),
    )


def _check_columns(settings: InputSettings, schema: Schema, problems: _Problems) -> None:
    for section, mapping in (("columns", settings.columns), ("values", settings.values)):
        for name in mapping:
            if name not in schema.names:
                problems.add(f"input.{section}.{name}", "is no attribute", nearest(name, schema.names))
    texts = list(settings.geocode)
    if settings.cell:
        counts = {column for cell in settings.cell for column in (cell.column, cell.minus) if column}
    else:
        counts = {settings.count} if settings.histograms else set()
        texts += [settings.columns.get(name, name) for name in schema.names]
    for name in texts:
        if name in counts:
            problems.add("input", f"column {name!r} cannot hold counts and labels or geocodes at once")
    for name, values in settings.values.items():
        if name in schema.names:
            for code, label in values.items():
                if label not in schema.attribute(name).labels:
                    problems.add(f"input.values.{name}.{code}", f"{label!r} is no label of {name!r}")
    columns = [cell.column for cell in settings.cell]
    for index, cell in enumerate(settings.cell):
        key = f"input.cell.{index + 1}"
        if columns.index(cell.column) < index:
            problems.add(f"{key}.column", f"{cell.column!r} is counted already", "each person may be counted only once")
        missing = set(schema.names) - set(cell.labels)
        for name in sorted(missing):
            problems.add(key, f"says nothing of attribute {name!r}", "each column counts exactly one cell")
        for name, label in cell.labels.items():
            if name not in schema.names:
                problems.add(f"{key}.labels.{name}", "is no attribute", nearest(name, schema.names))
            elif label not in schema.attribute(name).labels:
                known = schema.attribute(name).labels
                problems.add(f"{key}.labels.{name}", f"{label!r} is no label", nearest(label, known))


Shares = dict[str, tuple[Fraction, Mapping[str, Fraction]]]


def _shares(strategy: StrategySettings, levels: tuple[str, ...], problems: _Problems) -> Shares:
    """Shares of each level and, inside it, of each query; each set must sum to one, exactly."""
    for name in strategy.geolevels:
        if name not in levels:
            problems.add(f"strategy.geolevels.{name}", "is no level of the geography", nearest(name, levels))
    for name in strategy.queries:
        if name not in (*levels, "all"):
            problems.add(f"strategy.queries.{name}", "is no level of the geography", nearest(name, (*levels, "all")))
    _sums_to_one("strategy.geolevels", strategy.geolevels, problems)
    for name, table in strategy.queries.items():
        _sums_to_one(f"strategy.queries.{name}", table, problems)
    shares: Shares = {}
    for level in levels:
        geolevel = strategy.geolevels.get(level)
        if not geolevel:
            fault = "is missing" if geolevel is None else "must be above 0"
            remedy = "estimation goes down level by level and needs measurements at each"
            problems.add(f"strategy.geolevels.{level}", fault, remedy)
            continue
        table = strategy.queries.get(level, strategy.queries.get("all", {}))
        if not table:
            problems.add(f"strategy.queries.{level}", "is missing", "say which queries share this level's budget")
        shares[level] = (geolevel, table)
    return shares


def _sums_to_one(key: str, shares: Mapping[str, Fraction], problems: _Problems) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            problems.add(f"{key}.{name}", f"a share must lie between 0 and 1, not {share}")
    total = sum(shares.values(), Fraction(0))
    if total != 1:
        off = total - 1
        word = "too much" if off > 0 else "missing"
        problems.add(key, f"the shares sum to {total}, not 1", f"{abs(off)} is {word}")


QueryOf = Callable[[str, str], Query | None]


def _measurements(
    privacy: PrivacySettings | None, shares: Shares, query: QueryOf, problems: _Problems
) -> list[Measurement]:
    out = []
    for level, (geolevel, table) in shares.items():
        seen: dict[tuple[str, ...], str] = {}
        for name, share in table.items():
            key = f"strategy.queries.{level}.{name}"
            found = query(key, name)
            whole = geolevel * share
            if found is None or not 0 < whole <= 1:
                continue
            earlier = seen.setdefault(tuple(found.axes.values()), name)
            if earlier != name:
                problems.add(key, f"measures the same as {earlier!r}", "give one of them both shares")
            elif privacy is not None:
                cost = privacy.budget * whole
                noise = mechanism_for(privacy.framework, cost, found, privacy.neighbours)
                out.append(Measurement(level=level, query=found, share=whole, cost=cost, mechanism=noise))
    return out


class _Facts:
    """Collects invariants and bounds; nothing may be declared twice, whatever the data are."""

    def __init__(self, levels: tuple[str, ...], query: QueryOf, problems: _Problems) -> None:
        self.levels, self.query, self.problems = levels, query, problems
        self.invariants: list[Invariant] = []
        self.bounds: list[Bound] = []
        self._seen: dict[tuple[str, tuple[str, ...], str], str] = {}

    def add(self, key: str, entry: InvariantSettings | BoundSettings, sign: str) -> None:
        if self.levels and entry.level not in self.levels:
            self.problems.add(f"{key}.level", f"{entry.level!r} is no level", nearest(entry.level, self.levels))
        found = self.query(f"{key}.query", entry.query)
        if found is None:
            return
        earlier = self._seen.setdefault((entry.level, tuple(found.axes.values()), sign), key)
        if earlier != key:
            reason = f"{entry.query!r} at {entry.level!r} is already declared by {earlier}"
            self.problems.add(key, reason, "keep one of them")
        if isinstance(entry, InvariantSettings):
            self.invariants.append(Invariant(found, entry.level, entry.reason))
        else:
            told = entry.model_dump(exclude={"query"})
            self.bounds.append(Bound(query=found, **told))


def to_toml(settings: Settings) -> str:
    """Write resolved settings as TOML: what a release folder keeps of its config.

    Paths stay as they were written, so the text names no folder of the machine that ran it.
    """
    return tomli_w.dumps(settings.model_dump(mode="json", by_alias=True, exclude_none=True))
