"""The 2020 plans as plain values, from the published figures in tests/data."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from das.accounting.events import GaussianEvent
from das.accounting.hierarchy import HierarchicalPlan

CENSUS = Path(__file__).parents[1] / "data" / "census2020"
UNITS = {"US": 1, "State": 51, "State_Part": 87, "County": 3143, "Prim": 20_000, "Tract": 85_000}
UNITS |= {"Tract_Subset_Group": 86_000, "Tract_Subset": 87_000, "Block_Group": 240_000, "Block": 8_000_000}


def recode_maps(product: str, dims: dict[str, int]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Recode name -> (attribute, answer cell of each value)."""
    maps = {name: (name, tuple(range(size))) for name, size in dims.items()}
    for name, recode in json.loads((CENSUS / "recodes.json").read_text())[product]["recodes"].items():
        if recode["dim"] not in dims:
            continue
        cells = [-1] * dims[recode["dim"]]
        for cell, level in enumerate(recode["levels"]):
            for part in str(level["values"]).split(","):
                first, _, last = part.strip().partition("-")
                for value in range(int(first), int(last or first) + 1):
                    cells[value] = cell
        maps[name] = (recode["dim"], tuple(cells))
    return maps


def build(product: str, *, split: bool = False) -> tuple[HierarchicalPlan, Fraction]:
    """One product's plan and delta; `split` puts the measured State level below the published state totals."""
    settings = json.loads((CENSUS / f"{product}.json").read_text())
    dims, rho = settings["dims"], Fraction(settings["rho_total"])
    maps = recode_maps(product.replace("_PR", "_US"), dims)
    queries = {"total": (None,) * len(dims), "detailed": tuple(tuple(range(n)) for n in dims.values())}
    events = []
    for level, shares in settings["query_share_within_geolevel"].items():
        for query, share in shares.items():
            if query not in queries:
                kept = dict(maps[part] for part in query.split(" * ") if part in maps)
                queries[query] = tuple(kept.get(name) for name in dims)
            # one replaced record changes a marginal by (1, -1), so rho = 1 / sigma2
            sigma2 = 1 / (rho * Fraction(settings["geolevel_share"][level]) * Fraction(share))
            where = "State_Part" if split and level == "State" else level
            events.append(GaussianEvent(level=where, query=query, sigma2=sigma2))
    levels = list(settings["geolevels_top_down"])
    if split:
        levels.insert(levels.index("State") + 1, "State_Part")
    units = [UNITS[level] if not product.endswith("PR") or level != "State" else 1 for level in levels]
    return HierarchicalPlan(
        levels=tuple(levels),
        units=tuple(units),
        attributes=tuple(dims.items()),
        queries=queries,
        events=tuple(events),
        invariants=(("Block", "total"),) if "unit" in product else (("State", "total"),),
    ), Fraction(settings["delta"])


@pytest.fixture(scope="session")
def census_plan() -> Callable[..., tuple[HierarchicalPlan, Fraction]]:
    return build
