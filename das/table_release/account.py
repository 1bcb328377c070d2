"""The statement of one table: what is promised under each policy and for each secret, on what grounds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.accounting.policies import POLICIES
from das.exact import round_up
from das.table.neighbours import Neighbours
from das.table_release.data import ConfidentialTable, cell_of
from das.table_release.mechanisms import Loss, TableMechanism
from das.table_release.settings import SecretSection

__all__ = ["account_of"]


def account_of(
    table: ConfidentialTable,
    neighbours: Neighbours,
    mechanism: TableMechanism,
    secrets: list[SecretSection],
    delta: Fraction,
) -> dict[str, Any]:
    """Return the numbers of a mechanism; nothing in them depends on the table beyond its public facts."""
    near, vacuity = neighbours, neighbours.vacuity
    nominal = mechanism.nominal(delta)
    unsupported = {"status": "not supported", "reason": "a single record leaves the lattice of the public facts"}
    policies = [("semi", near.semi), ("irreducible", near.irreducible)]
    cells = table.cells
    conditions = {"irreducible": "where no public bound binds; otherwise the number of semi holds"}
    return {
        "nominal": _numbers(nominal) | {"status": "proved"} if nominal else unsupported,
        "effective": [
            {"policy": name, "a": near.adjacency, **_numbers(mechanism.loss(moves, delta)), "status": "proved"}
            | {"meaning": POLICIES[name].meaning.format(records=f"Up to {near.adjacency} records change")}
            | ({"condition": conditions[name]} if name in conditions and near.facts.bounds else {})
            for name, moves in policies
        ],
        "adjacency": {"a": near.adjacency, "grounds": near.grounds},
        "secrets": [_secret(table, near, mechanism, each, delta) for each in secrets],
        "vacuous": vacuity.vacuous,
        "pinned_cells": len(vacuity.pinned),
        "disclosed": ["*".join(cells[cell]) for cell in vacuity.pinned],
        "unprotected_secrets": ["*".join(cells[cell]) for cell in vacuity.unprotected],
        "coverage": float(vacuity.coverage),
    }


def _secret(
    table: ConfidentialTable,
    near: Neighbours,
    mechanism: TableMechanism,
    secret: SecretSection,
    delta: Fraction,
) -> dict[str, Any]:
    name = f"{_named(secret.before)} or {_named(secret.after)}"
    before, after = cell_of(table.labels, secret.before), cell_of(table.labels, secret.after)
    moves, grounds = near.secret(before, after)
    if moves is None:
        return {"secret": name, "status": "not supported", "reason": grounds}
    if before == after or (len(moves) and not moves.any()):
        return {"secret": name, "status": "not protected", "reason": "both counts are public, or the cells are one"}
    if not len(moves):
        return {"secret": name, "status": "not protected", "reason": grounds}
    moved: NDArray[np.int64] = moves[moves.any(axis=1)]
    return {"secret": name, **_numbers(mechanism.loss(moved, delta)), "status": "proved", "grounds": grounds}


def _named(cell: dict[str, str]) -> str:
    return "*".join(cell.values())


def _numbers(loss: Loss) -> dict[str, Any]:
    found: dict[str, Any] = {} if loss.rho is None else {"rho": float(round_up(float(loss.rho), 6))}
    return found | {"epsilon": float(round_up(loss.epsilon, 4)), "delta": float(loss.delta)}
