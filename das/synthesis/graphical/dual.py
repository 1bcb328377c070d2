"""The dual problem of the fit in packed form: one number for each possible cell of each measured marginal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from das.errors import InfeasibleError, Problem
from das.synthesis.curator import Measurement
from das.synthesis.domain import Constraints, Domain, spread
from das.synthesis.graphical.calibration import calibrate
from das.synthesis.graphical.junction_tree import JunctionTree
from das.synthesis.graphical.projection import Axes, Projection, projection

__all__ = ["Dual", "dual_of", "log_possible"]

Table = NDArray[np.float64]
_MEMORY = 20
"""Steps that L-BFGS remembers."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Dual:
    """Answers, variances and where they stand on the tree; an invariant has variance zero."""

    total: float
    tree: JunctionTree
    masks: tuple[Table, ...]
    keys: tuple[tuple[str, ...], ...]
    axes: tuple[Axes, ...]
    possible: tuple[NDArray[np.bool_], ...]
    plans: Mapping[int, Projection]
    answers: Table
    variances: Table

    @property
    def size(self) -> int:
        """Number of dual variables."""
        return len(self.answers)

    def packed(self, tables: Mapping[tuple[str, ...], Table]) -> Table:
        """Return the possible cells of all marginals side by side, zero for a marginal that is not given."""
        parts = [
            tables[key][mask] if key in tables else np.zeros(int(mask.sum()))
            for key, mask in zip(self.keys, self.possible, strict=True)
        ]
        return np.concatenate([np.zeros(0), *parts])

    def unpacked(self, packed: Table) -> dict[Axes, Table]:
        """Return one table for each marginal, zero in impossible cells."""
        out: dict[Axes, Table] = {}
        begin = 0
        for axes, mask in zip(self.axes, self.possible, strict=True):
            table = np.zeros(mask.shape)
            end = begin + int(mask.sum())
            table[mask] = packed[begin:end]
            out[axes], begin = table, end
        return out

    def tables(self, theta: Table) -> tuple[list[Table], float]:
        """Return node probabilities and the log partition function at theta."""
        values = self.unpacked(theta)
        potentials = []
        for node, mask in enumerate(self.masks):
            plan = self.plans.get(node)
            potential = plan.spread(values) if plan else np.zeros(mask.shape)
            potential += mask
            potentials.append(potential)
        return calibrate(self.tree, potentials)

    def expected(self, theta: Table) -> tuple[Table, float]:
        """Return expected counts in packed form, and the log partition function."""
        tables, log_partition = self.tables(theta)
        found: dict[Axes, Table] = {}
        for node, plan in self.plans.items():
            found |= plan.marginals(tables[node])
        parts = [found[axes][mask] for axes, mask in zip(self.axes, self.possible, strict=True)]
        return self.total * np.concatenate([np.zeros(0), *parts]), log_partition

    def solve(self, theta: Table, tau: float, *, iterations: int, tolerance: float) -> tuple[Table, int, float]:
        """Return the optimum for one tau, iterations used, and the largest remaining residual.

        Residuals of the optimality conditions are in units of the square root of count plus noise, and so are the
        variables: this is close to the diagonal of the Hessian, whose entries are counts.
        """
        weights = tau * self.variances
        scale = 1.0 / np.sqrt(np.maximum(self.answers, 0.0) + np.sqrt(self.variances) + weights + 1.0)

        def objective(scaled: Table) -> tuple[float, Table]:
            at = scaled * scale
            expected, log_partition = self.expected(at)
            value = self.total * log_partition - self.answers @ at + 0.5 * (weights * at) @ at
            gradient = expected - self.answers + weights * at
            return value / self.total, gradient * scale / self.total

        found = minimize(
            objective,
            theta / scale,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations, "maxcor": _MEMORY, "ftol": 1e-15, "gtol": tolerance / self.total},
        )
        return found.x * scale, int(found.nit), float(np.abs(found.jac).max(initial=0.0) * self.total)


def dual_of(
    measurements: Sequence[Measurement], domain: Domain, constraints: Constraints, *, total: float, tree: JunctionTree
) -> Dual:
    """State the problem; several measurements of one marginal are averaged by their precision."""
    combined = _combined(measurements, domain)
    for invariant in constraints.invariants:
        combined[invariant.attributes] = (invariant.counts.astype(np.float64), 0.0)
    keys = tuple(sorted(combined, key=domain.axes))
    axes = tuple(domain.axes(key) for key in keys)
    possible = tuple(constraints.possible(key, domain.shape_of(key)) for key in keys)
    holders: dict[int, list[Axes]] = {}
    for each in axes:
        node = tree.holder(each)
        if node is None:
            raise InfeasibleError(Problem("junction tree", "does not hold a measured marginal", "build it from them"))
        holders.setdefault(node, []).append(each)
    shapes = [tuple(domain.shape[axis] for axis in node) for node in tree.nodes]
    pairs = list(zip(keys, possible, strict=True))
    return Dual(
        total=total,
        tree=tree,
        masks=tuple(log_possible(node, domain, constraints) for node in tree.nodes),
        keys=keys,
        axes=axes,
        possible=possible,
        plans={node: projection(tree.nodes[node], shapes[node], sets) for node, sets in holders.items()},
        answers=np.concatenate([np.zeros(0), *(combined[key][0][mask] for key, mask in pairs)]),
        variances=np.concatenate([np.zeros(0), *(np.full(int(mask.sum()), combined[key][1]) for key, mask in pairs)]),
    )


def _combined(measurements: Sequence[Measurement], domain: Domain) -> dict[tuple[str, ...], tuple[Table, float]]:
    """Return one answer and variance for each marginal, attributes in axis order."""
    sums: dict[tuple[str, ...], tuple[Table, float]] = {}
    for each in measurements:
        key = domain.ordered(each.attributes)
        turned = np.transpose(each.answers, [each.attributes.index(name) for name in key])
        precision = 1.0 / each.noise.variance()
        value, weight = sums.get(key, (np.zeros(turned.shape), 0.0))
        sums[key] = (value + precision * turned, weight + precision)
    return {key: (value / weight, 1.0 / weight) for key, (value, weight) in sums.items()}


def log_possible(node: Axes, domain: Domain, constraints: Constraints) -> Table:
    """Return zero for each cell of a node, and minus infinity where it is impossible."""
    names = tuple(domain.names[axis] for axis in node)
    shape = domain.shape_of(names)
    allowed = np.ones(shape, dtype=bool)
    for zero in constraints.all_zeros:
        if set(zero.attributes) <= set(names):
            allowed &= ~spread(zero.impossible, zero.attributes, names)
    return np.where(allowed, 0.0, -np.inf)
