"""The config of `das synth`: frozen sections that know their keys and refuse every other."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from das.errors import ConfigError, InputError, Problem
from das.plan.settings import Label, exact_rational
from das.plan.toml_file import read_toml
from das.schema.query import Neighbours
from das.storage.single_release import Charge
from das.synthesis.domain import Constraints, Domain, Invariant, Zero
from geography.problem_list import nearest

__all__ = ["Delta", "Exact", "InputSection", "Section", "SynthSettings", "read_sections", "read_settings"]

Exact = Annotated[Fraction, BeforeValidator(exact_rational), Field(gt=0)]
Delta = Annotated[Exact, Field(lt=1)]
INFERRED = "inferred"


class Section(BaseModel):
    """A frozen section that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


Sections = TypeVar("Sections", bound=Section)


class InputSection(Section):
    """Which file holds the records, what kind of data they are, and where they are charged."""

    file: str
    dataset: str
    ledger: str = ""
    total: Exact | None = None
    data: Literal["confidential", "public", "generated"] = "confidential"

    def path(self, config: Path) -> Path:
        """Return the file, which is named relative to the config.

        Raises
        ------
        InputError
            There is none.
        """
        file = config.resolve().parent / self.file
        if not file.is_file():
            raise InputError(Problem(self.file, "no such file", "paths are relative to the config file"))
        return file

    def charge(self, config: Path, *, testing_key: str | None, unprotected: bool) -> Charge:
        """Return where a release of the file is charged: the ledger of the config, or one beside the file."""
        file = self.path(config)
        return Charge(
            ledger=config.resolve().parent / self.ledger if self.ledger else file.parent / "ledger.sqlite",
            dataset=self.dataset,
            total=self.total,
            files=(file,),
            testing_key=testing_key,
            data=self.data,
            unprotected=unprotected,
        )


class PrivacySection(Section):
    """The budget: rho, or epsilon with a delta; neighbours; the number of records if it is public."""

    rho: Exact | None = None
    epsilon: Exact | None = None
    delta: Delta | None = None
    neighbours: Neighbours = Neighbours.REPLACE
    records: int | None = Field(default=None, ge=1)


class ZeroSection(Section):
    """A structural zero: labels of some columns that never occur together."""

    labels: dict[str, list[str]]


class InvariantSection(Section):
    """A published marginal: columns in the order of the config, counts nested in that order."""

    columns: list[str]
    counts: list[Any]


class OutputSection(Section):
    """How many rows are written; without it, as many as there are records."""

    rows: int | None = Field(default=None, ge=1)


class NumbersSection(Section):
    """For `gaussian`: the public centre of each column, and the radius to which rows are clipped."""

    centre: dict[Label, float]
    radius: float = Field(gt=0)


class SynthSettings(Section):
    """A whole config."""

    name: str
    input: InputSection
    privacy: PrivacySection
    columns: dict[Label, list[Label] | Literal["inferred"]] = Field(default_factory=dict)
    numbers: NumbersSection | None = None
    zero: list[ZeroSection] = Field(default_factory=list)
    invariant: list[InvariantSection] = Field(default_factory=list)
    options: dict[str, Any] = Field(default_factory=dict)
    output: OutputSection = Field(default_factory=OutputSection)

    def domain(self, labels: dict[str, list[str]]) -> Domain:
        """Return the domain of the columns."""
        return Domain(tuple(labels), tuple(len(each) for each in labels.values()))

    def constraints(self, labels: dict[str, list[str]]) -> Constraints:
        """Return the declared zeros and invariants as arrays; names and labels that do not exist are listed."""
        problems: list[Problem] = []
        zeros, invariants = [], []
        order = list(labels)
        for number, zero in enumerate(self.zero, start=1):
            where = f"zero.{number}"
            for column, named in zero.labels.items():
                if column not in labels:
                    problems.append(Problem(where, f"{column!r} is not a column", nearest(column, order)))
                else:
                    unknown = [each for each in named if each not in labels[column]]
                    problems += [Problem(where, f"{each!r} is not a label of {column!r}") for each in unknown]
            if not problems:
                zeros.append(_zero(zero.labels, labels))
        for number, each in enumerate(self.invariant, start=1):
            where = f"invariant.{number}"
            unknown = [column for column in each.columns if column not in labels]
            problems += [Problem(where, f"{column!r} is not a column", nearest(column, order)) for column in unknown]
            counts = _counts(each.counts)
            if counts is None:
                problems.append(Problem(where, "counts are not whole numbers in a full table", "nest lists by column"))
            elif not unknown:
                invariants.append(Invariant(tuple(each.columns), counts))
        if problems:
            raise ConfigError(problems)
        return Constraints(tuple(zeros), tuple(invariants))


def read_settings(path: Path) -> SynthSettings:
    """Read a config; every mistake is named at once.

    Raises
    ------
    ConfigError
        The file is missing, is not TOML, or has keys or values that do not fit.
    """
    return read_sections(path, SynthSettings, "see das/synthesis/README.md")


def read_sections(path: Path, sections: type[Sections], remedy: str) -> Sections:
    """Read a config of one release, `das synth` or `das table`; `remedy` says where its keys are explained."""
    content = read_toml(path, missing=Problem(str(path), "there is no such file", remedy))
    try:
        return sections.model_validate(content)
    except ValidationError as error:
        raise ConfigError([_problem(path, dict(item), remedy) for item in error.errors()]) from None


def _problem(path: Path, item: dict[str, Any], remedy: str) -> Problem:
    where = f"{path.name}: {'.'.join(str(part) for part in item['loc'])}"
    if item["type"] == "extra_forbidden":
        known = sorted({key for kind in Section.__subclasses__() for key in kind.model_fields})
        return Problem(where, "unknown key", nearest(str(item["loc"][-1]), known))
    if item["type"] == "missing":
        return Problem(where, "is missing", remedy)
    return Problem(where, item["msg"].removeprefix("Value error, "))


def _zero(named: dict[str, list[str]], labels: dict[str, list[str]]) -> Zero:
    columns = [column for column in labels if column in named]
    mask = np.zeros(tuple(len(labels[column]) for column in columns), dtype=bool)
    mask[np.ix_(*([labels[column].index(label) for label in named[column]] for column in columns))] = True
    return Zero(tuple(columns), mask)


def _counts(nested: list[Any]) -> NDArray[np.int64] | None:
    try:
        counts = np.array(nested)
    except ValueError:
        return None
    return counts.astype(np.int64) if counts.dtype.kind in "iu" else None
