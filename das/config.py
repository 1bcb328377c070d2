"""TOML to plan: the only module that knows file syntax, and it reports everything that is wrong at once."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from das import presets
from das.constraint import Bound, Invariant
from das.errors import ConfigError, Problem
from das.plan import Measurement, Plan, mechanism_for
from das.query import Query, parse_query
from das.schema import Attribute, Schema, SchemaError, StructuralZero
from das.settings import (
    BoundSettings,
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
    """Read a config and resolve it into a plan; no record is read.

    Raises
    ------
    ConfigError
        With one problem per mistake, each naming its key and, for an unknown one, the nearest that exists.
    """
    path = Path(path)
    content = _read(path)
    problems = _Problems(path.name)
    if not isinstance(content.get("schema", {}), dict) or not isinstance(content.get("strategy", {}), dict):
        raise ConfigError(Problem(path.name, "[schema] and [strategy] must be tables"))
    _merge_presets(content, problems)
    settings = _settings(content, problems)
    if settings is None:
        raise ConfigError(problems.found)
    plan = _resolve(settings, path.resolve(), problems)
    if plan is None or problems.found:
        raise ConfigError(problems.found)
    return plan


class _Problems:
    """Collects what is wrong in one file, so that a user mends a config once and not ten times."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Problem] = []

    def add(self, key: str, reason: str, remedy: str = "") -> None:
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
        name = content.get(section, {}).get("preset")
        if name is None:
            continue
        if name not in presets.names():
            problems.add(f"{section}.preset", f"there is no preset {name!r}", nearest(str(name), presets.names()))
            continue
        content[section] = _over(presets.read(name).get(section, {}), content[section])


def _over(shipped: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What is written beside a preset wins; own geolevels take the preset's queries for the levels that are here."""
    merged = {**shipped, **own}
    if "geolevels" in own:
        here = {level: table for level, table in shipped["queries"].items() if level in own["geolevels"]}
        merged["queries"] = here | own.get("queries", {})
    return merged


def _settings(content: Mapping[str, Any], problems: _Problems) -> Settings | None:
    try:
        settings = Settings.model_validate(content)
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
        return None
    return settings


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


def _resolve(settings: Settings, source: Path, problems: _Problems) -> Plan | None:
    schema = problems.attempt("schema", lambda: _schema(settings.schema_))
    levels = tuple(level.name for level in settings.geography.levels)
    _check_columns(settings, schema, problems)
    shares = _shares(settings.strategy, levels, problems)
    if schema is None:
        return None

    queries: dict[str, Query | None] = {}

    def query(key: str, name: str) -> Query | None:
        if name not in queries:
            queries[name] = problems.attempt(key, lambda: parse_query(schema, name))
        return queries[name]

    measurements = _measurements(settings.privacy, shares, query)
    invariants = _invariants(settings.invariant, levels, query, problems)
    bounds = _bounds(settings.bound, levels, query, problems)
    for index, name in enumerate(settings.output.tables or ()):
        query(f"output.tables.{index + 1}", name)
    _check_facts(invariants, bounds, problems)
    return Plan(
        settings=settings,
        source=source,
        schema=schema,
        levels=levels,
        measurements=tuple(measurements),
        invariants=tuple(invariants),
        bounds=tuple(bounds),
    )


def _schema(settings: SchemaSettings) -> Schema:
    return Schema(
        tuple(Attribute(a.name, a.labels, a.recodes) for a in settings.attribute),
        tuple(StructuralZero(z.name, z.labels) for z in settings.structural_zero),
    )


def _check_columns(settings: Settings, schema: Schema | None, problems: _Problems) -> None:
    if schema is None:
        return
    for section, mapping in (("columns", settings.input.columns), ("values", settings.input.values)):
        for name in mapping:
            if name not in schema.names:
                problems.add(f"input.{section}.{name}", "is no attribute", nearest(name, schema.names))
    for name, values in settings.input.values.items():
        if name in schema.names:
            for code, label in values.items():
                if label not in schema.attribute(name).labels:
                    problems.add(f"input.values.{name}.{code}", f"{label!r} is no label of {name!r}")
    for index, cell in enumerate(settings.input.cell):
        key = f"input.cell.{index + 1}"
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
    shares: Shares = {}
    for level in levels:
        geolevel = strategy.geolevels.get(level)
        if geolevel is None:
            problems.add(f"strategy.geolevels.{level}", "is missing", "each level of the geography needs its share")
            continue
        table = strategy.queries.get(level, strategy.queries.get("all", {}))
        if geolevel > 0:
            if not table:
                problems.add(f"strategy.queries.{level}", "is missing", "say which queries share this level's budget")
            else:
                _sums_to_one(f"strategy.queries.{level}", table, problems)
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


def _measurements(privacy: PrivacySettings, shares: Shares, query: QueryOf) -> list[Measurement]:
    out = []
    for level, (geolevel, table) in shares.items():
        for name, share in table.items():
            found = query(f"strategy.queries.{level}.{name}", name)
            whole = geolevel * share
            if found is None or not 0 < whole <= 1:
                continue
            cost = privacy.budget * whole
            noise = mechanism_for(privacy.framework, cost, found, privacy.neighbours)
            out.append(Measurement(level=level, query=found, share=whole, cost=cost, mechanism=noise))
    return out


def _invariants(
    entries: tuple[InvariantSettings, ...], levels: tuple[str, ...], query: QueryOf, problems: _Problems
) -> list[Invariant]:
    out = []
    for index, entry in enumerate(entries):
        key = f"invariant.{index + 1}"
        if entry.level not in levels:
            problems.add(f"{key}.level", f"{entry.level!r} is no level", nearest(entry.level, levels))
            continue
        found = query(f"{key}.query", entry.query)
        if found is not None:
            out.append(Invariant(found, entry.level, entry.reason))
    return out


def _bounds(
    entries: tuple[BoundSettings, ...], levels: tuple[str, ...], query: QueryOf, problems: _Problems
) -> list[Bound]:
    out = []
    for index, entry in enumerate(entries):
        key = f"bound.{index + 1}"
        if entry.level not in levels:
            problems.add(f"{key}.level", f"{entry.level!r} is no level", nearest(entry.level, levels))
            continue
        found = query(f"{key}.query", entry.query)
        if found is not None:
            out.append(Bound(found, entry.level, entry.sense, entry.source, entry.geocode, entry.factor, entry.reason))
    return out


def _check_facts(invariants: list[Invariant], bounds: list[Bound], problems: _Problems) -> None:
    """Facts that speak twice of the same thing, whatever the data are."""
    seen: dict[tuple[str, str, str], str] = {}
    facts = [("invariant", i, fact.level, fact.query.name, "=") for i, fact in enumerate(invariants)]
    facts += [("bound", i, fact.level, fact.query.name, fact.sense) for i, fact in enumerate(bounds)]
    for kind, index, level, name, sense in facts:
        key = f"{kind}.{index + 1}"
        earlier = seen.setdefault((level, name, sense), key)
        if earlier != key:
            problems.add(key, f"{name!r} at {level!r} is already declared by {earlier}", "keep one of them")


def to_toml(settings: Settings) -> str:
    """Write resolved settings as TOML: what a release folder keeps of its config.

    Paths stay as they were written, so the text names no folder of the machine that ran it.
    """
    return tomli_w.dumps(settings.model_dump(mode="json", by_alias=True, exclude_none=True))
