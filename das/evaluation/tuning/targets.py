"""Accuracy targets: what a release has to achieve, read from a TOML file.

A target is about the answers of one query in the geounits of one level, all of them or those of some sizes. Errors are
compared with the standard deviation of normal errors that would just meet the target, so that targets of different
kinds have one measure: the ratio of the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator
from scipy.special import ndtr

from das.errors import ConfigError, Problem
from das.plan.plan import Plan
from das.plan.settings import Rational, Section
from das.plan.toml_file import read_toml
from das.schema.query import Query, parse_query
from das.schema.schema import SchemaError
from geography.problem_list import nearest

__all__ = ["Target", "TargetSettings", "Targets", "read_targets"]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
HALF_NORMAL = math.sqrt(2 / math.pi)
"""Mean absolute value of a standard normal error."""
_HALF = 0.5  # an error below this is none, because counts are whole numbers
_LARGEST = 1e9


class TargetSettings(Section):
    """One ``[[target]]``: a query at a level, and one kind of accuracy."""

    level: str
    query: str
    mae: Positive | None = None
    rmse: Positive | None = None
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    within: Positive | None = None
    within_percent: Positive | None = None
    size: tuple[int, int] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> TargetSettings:
        shares = self.share is not None
        near = (self.within is not None) + (self.within_percent is not None)
        kinds = (self.mae is not None) + (self.rmse is not None) + shares
        if kinds != 1 or near != shares:
            raise ValueError(
                "say exactly one of `mae`, `rmse`, or `share` together with either `within` (people) or "
                "`within_percent` (of the true count)"
            )
        if self.size is not None and not 0 <= self.size[0] < self.size[1]:
            raise ValueError("`size` is a range of true populations, for example [500, 5000]")
        return self


class LimitSettings(Section):
    """``[limit]``: the most that may be spent."""

    rho: Rational | None = None
    epsilon: Rational | None = None


class KeepSettings(Section):
    """``[keep]``: how many times larger than in the plan itself the error of any measured query may become."""

    times: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class FileSettings(Section):
    """A whole targets file."""

    target: tuple[TargetSettings, ...] = Field(min_length=1)
    limit: LimitSettings = LimitSettings()
    keep: KeepSettings = KeepSettings()


@dataclass(frozen=True, kw_only=True)
class Target:
    """One target, resolved: a query at a level with its kind of accuracy and the sizes that it is about.

    ``is_kept`` marks those that nobody stated: queries whose linear deviations must not become much worse.
    """

    level: str
    query: Query
    settings: TargetSettings
    is_kept: bool = False

    @property
    def name(self) -> str:
        """The target in words."""
        s = self.settings
        sizes = f" of {s.size[0]:,} to {s.size[1] - 1:,} people" if s.size else ""
        where = f"{'kept: ' if self.is_kept else ''}{self.query.name} at {self.level}{sizes}"
        if s.share is not None:
            near = f"{s.within_percent:g} %" if s.within_percent is not None else f"{s.within:g} people"
            return f"{where}: {100 * s.share:g} % within {near}"
        return f"{where}: mean |error| at most {s.mae:g}" if s.mae is not None else f"{where}: RMSE at most {s.rmse:g}"

    def chosen(self, totals: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which geounits the target is about, given their true totals."""
        size = self.settings.size
        return np.ones(len(totals), bool) if size is None else (totals >= size[0]) & (totals < size[1])

    def allowed(self, true: NDArray[np.int64]) -> float:
        """Return the standard deviation of normal errors that just meet the target, given the true answers."""
        s = self.settings
        if s.mae is not None:
            return s.mae / HALF_NORMAL
        if s.rmse is not None:
            return s.rmse
        return self._deviation(true, s.share or 0.0)

    def achieved(self, errors: NDArray[np.float64], true: NDArray[np.int64]) -> float:
        """Return what was achieved, in the target's own measure: an error, or a share."""
        s = self.settings
        if s.mae is not None:
            return float(np.abs(errors).mean())
        if s.rmse is not None:
            return float(np.sqrt((errors**2).mean()))
        return float((np.abs(errors) <= np.maximum(self._near(true), _HALF)).mean())

    def deviation(self, errors: NDArray[np.float64], true: NDArray[np.int64]) -> float:
        """Return the standard deviation of normal errors that are as far from the target.

        For a share: what is allowed, times the factor by which these errors would have to shrink to meet the target.
        """
        if self.settings.share is None:
            found = self.achieved(errors, true)
            return found / HALF_NORMAL if self.settings.mae is not None else found
        distance = np.abs(errors) / np.maximum(self._near(true), _HALF)
        return float(np.quantile(distance, self.settings.share, method="inverted_cdf")) * self.allowed(true)

    def met_by(self, deviation: float, true: NDArray[np.int64]) -> float:
        """Return what normal errors of this standard deviation achieve, in the target's own measure."""
        if self.settings.share is not None:
            return self._share(deviation, true)
        return HALF_NORMAL * deviation if self.settings.mae is not None else deviation

    @property
    def wanted(self) -> float:
        """The number that the target asks for."""
        s = self.settings
        return float(s.mae or s.rmse or s.share or 0.0)

    def _near(self, true: NDArray[np.int64]) -> NDArray[np.float64]:
        s = self.settings
        percent = s.within_percent
        if percent is not None:
            return np.asarray(true * (percent / 100.0), dtype=np.float64)
        return np.full(np.shape(true), s.within or 0.0)

    def _share(self, deviation: float, true: NDArray[np.int64]) -> float:
        near = np.maximum(self._near(true), _HALF)
        return float((2.0 * ndtr(near / deviation) - 1.0).mean())

    def _deviation(self, true: NDArray[np.int64], share: float) -> float:
        """Largest deviation for which the share of near answers is reached, by bisection."""
        low, high = 1e-3, _LARGEST
        for _ in range(100):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self._share(middle, true) >= share else (low, middle)
        return low


@dataclass(frozen=True, kw_only=True)
class Targets:
    """All targets of a file, the most that may be spent on them, and how much worse other queries may become."""

    targets: tuple[Target, ...]
    limit: Fraction | None = None
    keep: float | None = None


def read_targets(path: Path, plan: Plan) -> Targets:
    """Read a targets file for a plan; every mistake is reported at once.

    Raises
    ------
    ConfigError
        The file is not TOML, has unknown keys, or names a level or query that the plan does not have.
    """
    try:
        settings = FileSettings.model_validate(read_toml(path))
    except ValidationError as error:
        # a target that is wrong is no target either: pydantic then also finds too few
        items = [item for item in error.errors() if item["type"] != "too_short"] or error.errors()
        raise ConfigError([_problem(path, item) for item in items]) from None
    problems, found = [], []
    for number, each in enumerate(settings.target, start=1):
        key = f"{path.name}, target.{number}"
        if each.level not in plan.levels:
            remedy = nearest(each.level, plan.levels)
            problems.append(Problem(f"{key}.level", f"{each.level!r} is not a level", remedy))
            continue
        try:
            found.append(Target(level=each.level, query=parse_query(plan.schema, each.query), settings=each))
        except SchemaError as error:
            problems.append(Problem(f"{key}.query", str(error)))
    own, other = ("rho", "epsilon") if plan.framework == "zcdp" else ("epsilon", "rho")
    limit = getattr(settings.limit, own)
    if getattr(settings.limit, other) is not None:
        problems.append(Problem(f"{path.name}, limit.{other}", f"the plan's budget is in {own}", f"limit `{own}`"))
    elif limit is not None and limit <= 0:
        problems.append(Problem(f"{path.name}, limit.{own}", "must be positive"))
    if problems:
        raise ConfigError(problems)
    return Targets(targets=tuple(found), limit=limit, keep=settings.keep.times)


def _problem(path: Path, item: Any) -> Problem:
    """Describe a mistake in the words of the file."""
    loc = item["loc"]
    key = ".".join(str(part + 1) if isinstance(part, int) else str(part) for part in loc)
    where = f"{path.name}, {key}" if key else path.name
    if item["type"] == "extra_forbidden":
        sections: dict[Any, type[Section]] = {"target": TargetSettings, "limit": LimitSettings, "keep": KeepSettings}
        model = FileSettings if len(loc) == 1 else sections[loc[0]]
        return Problem(where, "unknown key", nearest(str(loc[-1]), model.model_fields))
    if item["type"] in ("missing", "too_short"):
        return Problem(where, "is missing", 'write [[target]] with level = "...", query = "..." and mae = 5')
    return Problem(where, item["msg"].removeprefix("Value error, "))
