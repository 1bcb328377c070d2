"""Which tables a release has: a query for a level or for a kind of area, and the names of its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from das.plan.plan import Plan
from das.schema.column_names import file_part
from das.schema.query import Query, parse_query
from geography import Areas, Spine

__all__ = ["INTERVALS", "TableTask", "table_queries", "table_tasks"]

INTERVALS = "_intervals"
"""How the name of a file of intervals ends; it begins as that of its table."""
WIDEST_TABLE = 4096
"""Columns of a table that is written without being asked for; the counts say the same, row by row."""
LONGEST_INTERVALS = 500_000
"""Rows of a file of intervals; `das query` answers for longer tables, and for everything that is not a table."""


@dataclass(frozen=True, slots=True)
class TableTask:
    """One query tabulated for one level or for one kind of area."""

    place: str
    query: str

    def file_name(self, plan: Plan) -> str:
        """Name of the table's files, without their endings."""
        return f"{self.place}-{file_part(parse_query(plan.schema, self.query))}"

    def has_intervals(self, plan: Plan, spine: Spine, areas: Mapping[str, Areas]) -> bool:
        """Whether a file of intervals stands beside the table."""
        settings = plan.settings
        linear = plan.mechanism_stage.measures and settings.estimate.information == "full"
        if not settings.output.intervals or not linear:
            return False
        places = spine.size(self.place) if self.place in plan.levels else len(areas[self.place].codes)
        return places * parse_query(plan.schema, self.query).size <= LONGEST_INTERVALS


def table_queries(plan: Plan) -> list[Query]:
    """The queries to tabulate: as configured, or all that were measured but the detailed and other long ones.

    Where nothing else is measured, totals are what everybody asks for first.
    """
    names = plan.settings.output.tables
    if names is None:
        most = min(plan.schema.size, WIDEST_TABLE + 1)
        names = tuple(dict.fromkeys(m.query.name for m in plan.measurements if m.query.size < most)) or ("total",)
    return [parse_query(plan.schema, name) for name in names]


def table_tasks(plan: Plan) -> list[TableTask]:
    """Every table of the release."""
    places = [*plan.levels, *(area.name for area in plan.settings.geography.areas)]
    return [TableTask(place, query.name) for place in places for query in table_queries(plan)]
