"""What every worker needs, by path rather than by value: the plan travels, the spine is read once per process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from das.plan import Plan
from das.release.measurements import numbers_per_unit
from das.release.parts import Part, parts_of
from geography import Spine

__all__ = ["Work"]


@lru_cache(maxsize=4)
def _spine(path: Path, _changed: int) -> Spine:
    return Spine.load(path)


@lru_cache(maxsize=64)
def _parts(path: Path, changed: int, level: str, numbers: int) -> tuple[Part, ...]:
    return tuple(parts_of(_spine(path, changed), level, numbers))


@dataclass(frozen=True)
class Work:
    """A plan, where its spine lies, and the partial folder of the stage that is being written."""

    plan: Plan
    spine_path: Path
    partial: Path

    @property
    def spine(self) -> Spine:
        """The spine, from this process's memory after the first time."""
        return _spine(self.spine_path, self.spine_path.stat().st_mtime_ns)

    def parts(self, level: str) -> tuple[Part, ...]:
        """The parts into which a level's files are cut; the same for every stage, so that part i reads part i."""
        numbers = numbers_per_unit(self.plan.at(level))
        return _parts(self.spine_path, self.spine_path.stat().st_mtime_ns, level, numbers)

    def all_parts(self) -> list[Part]:
        """Every part of every level, top-down."""
        return [part for level in self.plan.levels for part in self.parts(level)]
