"""One plan, and the statements it may come with."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from das.plan.load import load
from das.plan.presets import folder
from das.promise.account import account
from das.promise.statement import statement_of

OPTIONAL = (
    "a",
    "nominal_check",
    "effective",
    "secrets",
    "attributes",
    "geography",
    "tight",
    "determined_queries",
    "vacuous",
    "pinned_cells",
    "unprotected_secrets",
)


@pytest.fixture(scope="session")
def _made() -> str:
    demo = load(folder() / "demo.toml")
    statement = statement_of(demo, account(demo), facts_digest=64 * "5", charged=demo.budget, seeded=False)
    return json.dumps([demo.to_json(), statement])


@pytest.fixture
def plan(_made: str) -> dict[str, Any]:
    """The demo's plan for machines."""
    return json.loads(_made)[0]


@pytest.fixture
def accounted(_made: str) -> dict[str, Any]:
    """The statement as a run writes it."""
    return json.loads(_made)[1]


@pytest.fixture
def bare(accounted: dict[str, Any]) -> dict[str, Any]:
    """The statement with its nominal part alone."""
    return {key: value for key, value in accounted.items() if key not in OPTIONAL}


@pytest.fixture
def full(accounted: dict[str, Any]) -> dict[str, Any]:
    """The statement with every section there is."""
    return accounted | {
        "tight": {"epsilon": 16.6104, "delta": 1e-10, "method": "exact composition, upper bound"},
        "pinned_cells": [{"query": "total", "level": "state"}],
        "unprotected_secrets": ["the state of the only resident of area 07"],
    }


@pytest.fixture
def pure(plan: dict[str, Any], bare: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Statement and plan of a release under pure DP with epsilon 2."""
    nominal = {"epsilon": 2.0000000000000004, "epsilon_exact": "2", "delta": 0.0, "status": "proved"}
    plan |= {"framework": "pure", "budget": "2", "epsilon": nominal["epsilon"]}
    for measurement in plan["measurements"]:
        measurement["cost"] = str(2 * Fraction(measurement["share"]))
    return bare | {"framework": "pure", "nominal": nominal}, plan


@pytest.fixture
def manifest() -> dict[str, Any]:
    """What a run knows of itself."""
    return {
        "product": "Counts of a state that never existed",
        "ledger_entry": {"sequence": 3, "hash": 64 * "a"},
        "conformance": {"status": "verified from the published files"},
        "versions": {"das": "0.1.0", "numpy": "2.1.0"},
        "started": "2030-01-02T03:04:05Z",
        "finished": "2030-01-02T03:14:05Z",
        "inputs": [{"name": "persons.parquet", "sha256_salted": 64 * "b"}],
        "public_inputs": [{"name": "geography.csv", "sha256": 64 * "c"}],
    }
