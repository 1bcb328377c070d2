"""The benchmark of the estimate: its rows, on a small family, and the family itself."""

from __future__ import annotations

import numpy as np
import pytest

from das.bench.estimate import rows
from das.bench.tracts import tracts
from das.estimation.solvers.active_set import solve_fast
from das.estimation.support import limits_on_support
from das.estimation.verify import residual

FIELDS = {"name", "ours", "peer", "ratio", "unit", "checked", "children", "coupled", "information", "gap"}


@pytest.mark.slow
def test_rows_have_the_promised_fields_and_the_same_optimum():
    found = rows(repetitions=1, children=(2,), information=("level", "full"))
    assert [(row["information"], row["coupled"]) for row in found] == [
        ("level", False),
        ("level", True),
        ("full", False),
        ("full", True),
    ]
    for row in found:
        assert set(row) >= FIELDS
        assert row["ratio"] == pytest.approx(row["peer"] / row["ours"])
        assert row["checked"].startswith("same optimum")
        assert row["solver"] == "fast"
        assert row["gap"] <= 1e-6


def test_the_family_is_coupled_by_facts_that_its_optimum_meets():
    family = tracts(3, coupled=True, full=True)
    total, quarters = family.limits
    assert np.array_equal(total.lower, total.upper)
    assert (quarters.upper == 0).any()
    assert residual(family, limits_on_support(family), solve_fast(family).x) < 1e-6
