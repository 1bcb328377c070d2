"""A fitted graphical model as a file: labels, total, impossible cells and log-linear parameters.

The probability of a cell is proportional to exp of the sum of its parameters, one for each marginal listed, and zero
where a zero covers it. That is small, exact and public: a function of noisy answers and public facts. `raked` gives a
model the marginal of another release and keeps its conditional distributions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, InfeasibleError, InputError, Problem
from das.synthesis.domain import Constraints, Domain, Invariant, Zero
from das.synthesis.graphical.calibration import calibrate
from das.synthesis.graphical.dual import log_possible
from das.synthesis.graphical.fit import FitOptions, check_size, tree_of
from das.synthesis.graphical.model import Convergence, GraphicalModel
from geography.table_text import why_not_in_a_table

__all__ = ["MODEL_FILE", "StoredModel", "model_content", "raked", "read_model"]

MODEL_FILE = "model.json"
_EXACT = Convergence(iterations=0, gradient=0.0, chi_square=0.0, numbers=0, converged=True)
"""A model that was not fitted but written down."""


@dataclass(frozen=True, eq=False)
class StoredModel:
    """What a model file holds.

    Parameters
    ----------
    labels : mapping
        Labels of each column, in axis order.
    total : float
        Records that the model stands for.
    zeros : tuple of Zero
        Cells in which nobody is.
    parameters : mapping
        A table of log-linear parameters for each marginal.
    """

    labels: Mapping[str, tuple[str, ...]]
    total: float
    zeros: tuple[Zero, ...]
    parameters: Mapping[tuple[str, ...], NDArray[np.float64]]

    @property
    def domain(self) -> Domain:
        """Columns and their numbers of labels."""
        return Domain(tuple(self.labels), tuple(len(each) for each in self.labels.values()))

    def model(self) -> GraphicalModel:
        """Return the model as it was fitted."""
        return _calibrated(self.domain, Constraints(zeros=self.zeros), self.parameters, self.total)


def model_content(model: GraphicalModel, labels: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return a model as plain data."""
    return {
        "columns": {name: list(labels[name]) for name in model.domain.names},
        "total": model.total,
        "zeros": [
            {"columns": list(zero.attributes), "cells": np.flatnonzero(zero.impossible).tolist()}
            for zero in model.constraints.all_zeros
        ],
        "parameters": [
            {"columns": list(key), "values": table.reshape(-1).tolist()} for key, table in model.parameters.items()
        ],
    }


def read_model(path: Path) -> StoredModel:
    """Read a model file.

    Raises
    ------
    InputError
        The file does not hold what `model_content` writes.
    """
    try:
        content = json.loads(path.read_bytes())
        labels = {str(name): tuple(map(str, each)) for name, each in content["columns"].items()}
        if any(why_not_in_a_table(text) for name, each in labels.items() for text in (name, *each)):
            raise ValueError("a label is a formula to a spreadsheet")
        domain = Domain(tuple(labels), tuple(len(each) for each in labels.values()))
        zeros = []
        for each in content["zeros"]:
            mask = np.zeros(domain.size_of(each["columns"]), dtype=bool)
            mask[each["cells"]] = True
            zeros.append(Zero(tuple(each["columns"]), mask.reshape(domain.shape_of(each["columns"]))))
        parameters = {
            tuple(each["columns"]): np.array(each["values"], dtype=float).reshape(domain.shape_of(each["columns"]))
            for each in content["parameters"]
        }
        return StoredModel(labels, float(content["total"]), tuple(zeros), parameters)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, ConfigError):
        raise InputError(Problem(path.name, "is not a model file", "name a folder that `das synth` wrote")) from None


def raked(stored: StoredModel, counts: NDArray[np.int64], attributes: tuple[str, ...]) -> GraphicalModel:
    """Return the model with a marginal of its own replaced by exact counts.

    Of all distributions with that marginal it is the one nearest to the model in Kullback-Leibler divergence (Csiszar
    1975): the conditional distribution of all other columns, given these, is the model's own.

    Parameters
    ----------
    stored : StoredModel
        The model.
    counts : ndarray of int
        Counts of the marginal, which becomes an invariant.
    attributes : tuple of str
        Its attributes, in the order of the model's columns.

    Raises
    ------
    InfeasibleError
        Somebody is counted where the model's zeros allow nobody.

    Examples
    --------
    >>> stored = StoredModel({"sex": ("f", "m"), "work": ("no", "yes")}, 10.0, (),
    ...                      {("sex", "work"): np.log(np.array([[4.0, 1.0], [1.0, 4.0]]))})
    >>> raked(stored, np.array([10, 5]), ("sex",)).marginal(("sex", "work")).round(6).tolist()
    [[8.0, 2.0], [1.0, 4.0]]
    """
    domain = stored.domain
    constraints = Constraints(stored.zeros, (Invariant(attributes, counts),))
    held = _calibrated(domain, Constraints(stored.zeros), stored.parameters, 1.0, root=attributes).marginal(attributes)
    if (counts[held <= 0] > 0).any():
        reason = "rules out cells in which the release counts people"
        remedy = "correct the structural zeros or invariants of the model's config, or match fewer columns"
        raise InfeasibleError(Problem("model", reason, remedy))
    total = int(counts.sum())
    ratio = np.divide(counts / max(total, 1), held, out=np.ones_like(held), where=(held > 0) & (counts > 0))
    parameters = dict(stored.parameters)
    parameters[attributes] = parameters.get(attributes, 0.0) + np.log(ratio)
    return _calibrated(domain, constraints, parameters, float(total))


def _calibrated(
    domain: Domain,
    constraints: Constraints,
    parameters: Mapping[tuple[str, ...], NDArray[np.float64]],
    total: float,
    root: tuple[str, ...] = (),
) -> GraphicalModel:
    tree = tree_of(domain, [*parameters, root], constraints)
    check_size(tree, FitOptions())
    potentials = [log_possible(node, domain, constraints) for node in tree.nodes]
    for attributes, table in parameters.items():
        sizes = dict(zip(domain.axes(attributes), table.shape, strict=True))
        node = next(k for k, axes in enumerate(tree.nodes) if sizes.keys() <= set(axes))
        potentials[node] += table.reshape(tuple(sizes.get(axis, 1) for axis in tree.nodes[node]))
    tables, _ = calibrate(tree, potentials)
    return GraphicalModel(
        domain=domain,
        constraints=constraints,
        total=total,
        tree=tree,
        tables=tuple(tables),
        parameters=parameters,
        convergence=_EXACT,
    )
