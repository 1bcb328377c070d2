"""The shape of a config: frozen sections that know their keys and refuse every other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from das.schema.query import Neighbours
from geography.arrays import LONGEST_CODE
from geography.table_text import CONTROL, why_not_in_a_table

__all__ = [
    "NAME",
    "TITLE",
    "AreaSettings",
    "AttributeSettings",
    "BoundSettings",
    "CellSettings",
    "EstimateSettings",
    "GeographySettings",
    "InputSettings",
    "InvariantSettings",
    "LevelSettings",
    "OutputSettings",
    "PrivacySettings",
    "PublishedSettings",
    "ReleaseSettings",
    "SchemaSettings",
    "Settings",
    "StrategySettings",
    "StructuralZeroSettings",
]


NAME = r"^[A-Za-z][A-Za-z0-9_]*$"
"""How a level or a kind of area is spelt: it becomes the name of a column."""
TITLE = r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$"
"""How a release is spelt."""


def exact_rational(value: Any) -> Fraction:
    """Read a whole number or a string such as ``"104/4099"``; a float has already lost what it meant.

    Examples
    --------
    >>> exact_rational("104/4099")
    Fraction(104, 4099)
    >>> exact_rational(0.1)
    Traceback (most recent call last):
    ValueError: 0.1 is a float; write an exact fraction as a string, for example "1/10"
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        raise ValueError('must be a whole number or a fraction in quotes, for example "1/10"')
    if isinstance(value, float):
        near = Fraction(repr(value)) if value == value and 1e-99 < abs(value) < 1e9 else ""
        raise ValueError(f'{value!r} is a float; write an exact fraction as a string, for example "{near or "1/10"}"')
    if isinstance(value, str) and (len(value) > 200 or re.search(r"[eE][+-]?[\d_]{3}", value)):
        raise ValueError("has more digits than a share or a budget can need")
    if isinstance(value, int) and abs(value) >= 10**200:
        raise ValueError("has more digits than a share or a budget can need")
    try:
        return Fraction(value)
    except (ValueError, ZeroDivisionError):
        if isinstance(value, str) and re.fullmatch(r"\s*-?\d+,\d+\s*", value):
            point = value.replace(",", ".").strip()
            raise ValueError(f'{value!r} has a decimal comma; write "{point}" or "{Fraction(point)}"') from None
        raise ValueError(f'{value!r} is not a fraction; write for example "104/4099"') from None


Rational = Annotated[Fraction, BeforeValidator(exact_rational), PlainSerializer(str)]


def text_list(value: Any) -> Any:
    """Let one string stand for a list of one."""
    return [value] if isinstance(value, str) else value


TextList = Annotated[tuple[str, ...], BeforeValidator(text_list)]


def file_name(value: str) -> str:
    """Accept what the operating system can look for."""
    if CONTROL.search(value):
        raise ValueError("a file's name holds a control character")
    if any(len(part.encode()) > LONGEST_NAME for part in value.split("/")) or len(value) > LONGEST_PATH:
        raise ValueError("is too long to be the name of a file")
    return value


LONGEST_NAME, LONGEST_PATH = 255, 4000
"""Bytes of a file's name, and characters of a path: what Linux takes."""

FileName = Annotated[str, AfterValidator(file_name)]
FileNames = Annotated[tuple[FileName, ...], BeforeValidator(text_list)]


def published_text(value: str) -> str:
    """Accept a label that can stand in a table: the same text for every reader, a spreadsheet too.

    Examples
    --------
    >>> published_text("65+"), published_text("-5")
    ('65+', '-5')
    >>> published_text("=1+1")
    Traceback (most recent call last):
    ValueError: '=1+1' is a formula to a spreadsheet; begin it with a letter or a digit
    """
    reason = why_not_in_a_table(value)
    if reason:
        raise ValueError(f"{value!r} {reason}")
    return value


Label = Annotated[str, AfterValidator(published_text)]


class Section(BaseModel):
    """A part of the config: frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, validate_default=True)


class ReleaseSettings(Section):
    """What the release is called, and the configs or presets that are released with it as one product."""

    name: str = Field(min_length=1, pattern=TITLE)
    product: str = ""
    with_: TextList = Field(default=(), alias="with")


class PrivacySettings(Section):
    """How much may be learnt, in which currency, about whom."""

    framework: Literal["zcdp", "pure"] = "zcdp"
    rho: Rational | None = None
    epsilon: Rational | None = None
    delta: Rational = Fraction(1, 10**10)
    unit: str = "person"
    neighbours: Neighbours = Neighbours.REPLACE

    @model_validator(mode="after")
    def _currency(self) -> PrivacySettings:
        needed, other = ("rho", "epsilon") if self.framework == "zcdp" else ("epsilon", "rho")
        if getattr(self, needed) is None or getattr(self, other) is not None:
            raise ValueError(f"framework {self.framework!r} takes its budget from `{needed}` (and not `{other}`)")
        if self.budget <= 0:
            raise ValueError(f"`{needed}` must be positive")
        if not 0 < self.delta < 1:
            raise ValueError("`delta` must lie strictly between 0 and 1")
        return self

    @property
    def budget(self) -> Fraction:
        """The whole budget in the currency of the framework."""
        amount = self.rho if self.framework == "zcdp" else self.epsilon
        return amount if amount is not None else Fraction(0)


class CellSettings(Section):
    """One column of a wide count file: which cell it counts, and a column to take off first (a nested total)."""

    column: str
    minus: str | None = None
    labels: Mapping[str, str]


class InputSettings(Section):
    """Where the data are, how their columns map to the schema, and whether they need protection.

    ``data`` says what they are: ``"confidential"``, ``"public"`` (everybody may have them already), or ``"generated"``
    (they are about nobody). It decides what may be done with them, and nothing that is drawn.
    """

    data: Literal["confidential", "public", "generated"] = "confidential"
    microdata: FileNames = ()
    histograms: FileNames = ()
    geocode: TextList = ("geocode",)
    columns: Mapping[str, str] = {}
    values: Mapping[str, Mapping[str, str]] = {}
    count: str = "count"
    cell: tuple[CellSettings, ...] = ()
    dataset: str = "data"
    ledger: FileName | None = None
    budget: Rational | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> InputSettings:
        if bool(self.microdata) == bool(self.histograms):
            raise ValueError("give either `microdata` (one row per record) or `histograms` (counts), not both or none")
        if self.cell and not self.histograms:
            raise ValueError("`cell` describes columns of `histograms`")
        if not all(self.files):
            raise ValueError("the name of a file is blank")
        if self.budget is not None and self.budget <= 0:
            raise ValueError("`budget`, all that may ever be spent on the data set, must be positive")
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """The patterns of the confidential files, whichever kind they are."""
        return self.microdata or self.histograms


class LevelSettings(Section):
    """One level of the spine: its name (its column, in a wide crosswalk) and the width of its part of a geocode.

    ``names`` is the column, in the same file, of what its places are called.
    """

    name: str = Field(pattern=NAME)
    width: int | None = Field(default=None, ge=1, le=LONGEST_CODE)
    names: str | None = None


class AreaSettings(Section):
    """One kind of area off the spine; ``names`` is the column of what its areas are called."""

    name: str = Field(pattern=NAME)
    file: FileName
    area: str = "area"
    geocode: str = "geocode"
    names: str | None = None


class GeographySettings(Section):
    """The spine, from a list of fixed-width geocodes or from a crosswalk; public, and never taken from the data."""

    levels: tuple[LevelSettings, ...] = Field(min_length=1)
    units: FileName | None = None
    column: str = "geocode"
    crosswalk: FileName | None = None
    layout: Literal["wide", "edges"] = "wide"
    nested: bool = False
    areas: tuple[AreaSettings, ...] = ()

    @model_validator(mode="after")
    def _one_source(self) -> GeographySettings:
        if bool(self.units) == bool(self.crosswalk):
            raise ValueError(
                "give either `units` (a file that lists every leaf's fixed-width geocode, the empty ones too) "
                "or `crosswalk`"
            )
        if self.units and any(level.width is None for level in self.levels):
            raise ValueError("with `units`, each level needs the `width` of its part of the geocode")
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise ValueError("each level needs a name of its own")
        clash = {area.name for area in self.areas} & set(names)
        if clash:
            raise ValueError(f"{clash.pop()!r} names a level and an area")
        return self


class AttributeSettings(Section):
    """One attribute, its labels in order, and its recodes (name to groups of labels)."""

    name: str
    labels: tuple[Label, ...] = Field(min_length=1)
    recodes: Mapping[str, Mapping[Label, tuple[str, ...]]] = {}


class StructuralZeroSettings(Section):
    """Cells in which nobody can be."""

    name: str
    labels: Mapping[str, TextList]


class SchemaSettings(Section):
    """The attributes, or the preset that has them."""

    preset: str | None = None
    attribute: tuple[AttributeSettings, ...] = ()
    structural_zero: tuple[StructuralZeroSettings, ...] = ()


class StrategySettings(Section):
    """Shares of the budget; ``queries.all`` serves each level that has no table of its own.

    ``passes`` is the order that belongs to a preset's queries: that of ``estimate.passes`` where it says nothing.
    """

    preset: str | None = None
    geolevels: Mapping[str, Rational] = {}
    queries: Mapping[str, Mapping[str, Rational]] = {}
    passes: Mapping[str, tuple[TextList, ...]] = {}


class InvariantSettings(Section):
    """A query published exactly at a level."""

    query: str
    level: str
    reason: str


class BoundSettings(Section):
    """A bound on a query at a level, from a public file with a column per answer; ``factor`` scales its numbers.

    ``missing`` says what an upper bound is for a geounit without a row: ``"zero"`` (nobody may be there) or
    ``"unlimited"`` (nothing is known). Without it, a row that is missing is a problem.
    """

    query: str
    level: str
    sense: Literal["<=", ">="]
    source: FileName
    geocode: str = "geocode"
    factor: int = Field(default=1, ge=1, le=10**6)
    missing: Literal["zero", "unlimited"] | None = None
    reason: str = ""


class PublishedSettings(Section):
    """A table that was released before and must be matched: a release folder, or a file keyed by geocode."""

    query: str
    level: str
    source: FileName
    geocode: str = "GEOID"
    reason: str = ""


class EstimateSettings(Section):
    """How measurements become counts.

    ``passes`` says, for a level or for ``all``, which queries are estimated first: lists of their names, in order. What
    is not named comes last. Each pass keeps the answers of the one before it. Only for ``information = "level"``.

    ``split`` says what to do where the facts leave open whether every parent's counts can be split among its children:
    ``"guaranteed"`` refuses before anything is measured, ``"attempted"`` lets a family end the run if it comes to that.

    ``prior`` is for cells with so few people that measurements say next to nothing about them: ``"none"`` assumes
    nothing; ``"sharing"`` expects them to be distributed over the children as similar people are
    (:mod:`das.estimation.prior.sparse_cells`). On the blocks of Rhode Island that changes the average error by at most
    0.5 percent and takes about a tenth of a person more from enclaves of two and from American Indian counts of 5 to 9
    in a block group (``docs/accuracy.md``). Only for ``information = "full"``; linear estimates and intervals never
    contain it.
    """

    method: Literal["nonnegative-l2", "congenial"] = "nonnegative-l2"
    information: Literal["full", "level"] = "full"
    solver: Literal["fast", "cvxpy"] = "fast"
    passes: Mapping[str, tuple[TextList, ...]] = {}
    split: Literal["guaranteed", "attempted"] = "guaranteed"
    prior: Literal["none", "sharing"] = "none"


class OutputSettings(Section):
    """Which products to write; ``tables`` is a list of queries.

    ``intervals`` writes, beside each table, a file with the linear estimate and the 95 % interval of each count, where
    there are linear estimates (``information = "full"``). ``geoid`` says how a code stands in the CSV files of tables:
    ``"plain"``; ``"quoted"``, all text in quotes; or ``"excel"``, as ``="01"``, which a spreadsheet keeps as text.
    """

    tables: TextList | None = None
    intervals: bool = True
    microdata: bool = True
    csv: bool = True
    geoid: Literal["plain", "quoted", "excel"] = "plain"


class Settings(Section):
    """A whole config."""

    release: ReleaseSettings
    privacy: PrivacySettings
    input: InputSettings
    geography: GeographySettings
    schema_: SchemaSettings = Field(alias="schema")
    strategy: StrategySettings
    invariant: tuple[InvariantSettings, ...] = ()
    bound: tuple[BoundSettings, ...] = ()
    published: tuple[PublishedSettings, ...] = ()
    estimate: EstimateSettings = EstimateSettings()
    output: OutputSettings = OutputSettings()
