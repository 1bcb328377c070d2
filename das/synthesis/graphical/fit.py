"""The maximum-entropy distribution of noisy marginals.

With answers y_c of marginals c, noise variances v_c, marginals M_c p of a distribution p and the total N, the fit is

    min over p   sum_c |y_c - N M_c p|^2 / (2 v_c)  +  tau N KL(p | uniform on the possible cells)

Its dual is smooth and strongly convex: p is proportional to exp(sum_c theta_c), and theta minimises

    N log Z(theta) - sum_c <y_c, theta_c> + tau/2 sum_c v_c |theta_c|^2 .

It is solved by L-BFGS, for decreasing tau, each solution the start of the next. An invariant is a marginal with v = 0;
structural zeros are cells of probability zero. McKenna, Miklau and Sheldon (2021, arXiv 2108.04978) fit the same model
by mirror descent; the dual converges in some hundred evaluations, each one propagation on the junction tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from das.errors import ConfigError, InfeasibleError, Problem
from das.synthesis.curator import Measurement
from das.synthesis.domain import NO_CONSTRAINTS, Constraints, Domain
from das.synthesis.graphical.dual import dual_of
from das.synthesis.graphical.junction_tree import JunctionTree, junction_tree
from das.synthesis.graphical.model import Convergence, GraphicalModel

__all__ = ["FitOptions", "check_size", "fit", "tree_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """How a fit is made; the defaults were fixed on the generated file of `das.bench.census_like.employment`.

    Parameters
    ----------
    tau : Fraction
        Weight of the entropy beside the residuals.
    from_tau : Fraction
        Where the decreasing sequence begins, without a start of its own.
    iterations : int
        The most L-BFGS iterations for each tau.
    tolerance : float
        The largest residual of an optimality condition that is aimed at, in units of the square root of count plus
        noise.
    accepted : float
        The residual up to which a fit counts as converged.
    cells : int
        The most numbers that the junction tree may hold.
    """

    tau: Fraction = Fraction(1, 50)
    from_tau: Fraction = Fraction(1, 5)
    iterations: int = 400
    tolerance: float = 0.05
    accepted: float = 0.3
    cells: int = 20_000_000


def tree_of(domain: Domain, attribute_sets: Iterable[Sequence[str]], constraints: Constraints) -> JunctionTree:
    """Return the junction tree of marginals, zeros and invariants; its first node holds all invariants."""
    named = [*attribute_sets, *(zero.attributes for zero in constraints.all_zeros)]
    root = domain.axes(domain.ordered(constraints.invariant_attributes))
    return junction_tree(domain.shape, [domain.axes(each) for each in named], root)


def check_size(tree: JunctionTree, options: FitOptions) -> None:
    """Refuse a model that is too large, before anything is spent.

    Raises
    ------
    ConfigError
        It names the methods that fit a larger domain.
    """
    if tree.cells > options.cells:
        reason = f"the model would hold {tree.cells:.3g} numbers, more than {options.cells:.3g}"
        remedy = "use `mst`, or `aim` with a smaller model, or `stability` for a domain beyond any model"
        raise ConfigError(Problem("domain", reason, remedy))


def fit(
    measurements: Sequence[Measurement],
    domain: Domain,
    constraints: Constraints = NO_CONSTRAINTS,
    *,
    total: float,
    options: FitOptions | None = None,
    start: GraphicalModel | None = None,
) -> GraphicalModel:
    """Fit the maximum-entropy model to noisy marginals.

    Parameters
    ----------
    measurements : sequence of Measurement
        Marginals with noise; several of one marginal are averaged by their precision.
    domain : Domain
        Attributes and labels.
    constraints : Constraints
        Structural zeros and invariants, which hold exactly (invariants to the tolerance, and exactly in rows).
    total : float
        Number of records: public, or estimated from what was measured.
    options : FitOptions, optional
        How the fit is made.
    start : GraphicalModel, optional
        An earlier fit to begin from.

    Raises
    ------
    InfeasibleError
        The constraints contradict each other, or the fit cannot meet the invariants.
    """
    options = options or FitOptions()
    if not total > 0:
        raise InfeasibleError(Problem("total", "is not positive", "a model needs at least one record"))
    tree = tree_of(domain, [each.attributes for each in measurements], constraints)
    check_size(tree, options)
    dual = dual_of(measurements, domain, constraints, total=float(total), tree=tree)
    theta = dual.packed(start.parameters) if start else np.zeros(dual.size)
    iterations, gradient = 0, 0.0
    for tau in _continuation(options, begun=start is not None):
        last = tau == float(options.tau)
        theta, used, gradient = dual.solve(
            theta,
            tau,
            iterations=options.iterations if last else options.iterations // 4,
            tolerance=options.tolerance if last else 10 * options.tolerance,
        )
        iterations += used
    tables, _ = dual.tables(theta)
    expected, _ = dual.expected(theta)
    noisy = dual.variances > 0
    residuals = (dual.answers - expected)[noisy] ** 2 / dual.variances[noisy]
    unmet = np.abs(dual.answers - expected)[~noisy].max(initial=0.0)
    if unmet > max(1.0, 1e-3 * total):
        reason = f"the fit misses them by {unmet:.3g} records"
        raise InfeasibleError(Problem("invariants", reason, "check that a distribution meets them with the zeros"))
    parameters = {key: theta_c for key, theta_c in zip(dual.keys, dual.unpacked(theta).values(), strict=True)}
    return GraphicalModel(
        domain=domain,
        constraints=constraints,
        total=float(total),
        tree=tree,
        tables=tuple(tables),
        parameters=parameters,
        convergence=Convergence(
            iterations=iterations,
            gradient=gradient,
            chi_square=float(residuals.mean()) if len(residuals) else 0.0,
            numbers=dual.size,
            converged=gradient <= options.accepted,
        ),
    )


def _continuation(options: FitOptions, *, begun: bool) -> list[float]:
    """Return decreasing values of tau, by factors of about three; from an earlier fit the last alone."""
    first, last = float(options.from_tau), float(options.tau)
    if begun or first <= last:
        return [last]
    steps = max(1, round(np.log(first / last) / np.log(3.2)))
    return [*(first * (last / first) ** (k / steps) for k in range(steps)), last]
