"""The table of methods: what each needs, and one way to run any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, Problem
from das.synthesis.copula import CopulaOptions, fit_copula
from das.synthesis.cost import Spent
from das.synthesis.curator import Curator
from das.synthesis.domain import NO_CONSTRAINTS, Constraints
from das.synthesis.graphical.aim import AimOptions, fit_aim
from das.synthesis.graphical.pairs import PairsOptions, fit_pairs
from das.synthesis.graphical.tree_selection import BayesNetOptions, MstOptions, fit_bayes_net, fit_mst
from das.synthesis.histogram import HistogramOptions, fit_exponential, fit_histogram
from das.synthesis.mixture import MixtureOptions, fit_mixture
from das.synthesis.mwem import MwemOptions, fit_mwem, fit_mwem_cells
from das.synthesis.pmw import PmwOptions, fit_pmw
from das.synthesis.stability import StabilityOptions, fit_stability

__all__ = ["METHODS", "OTHER_NAMES", "Method", "Model", "Synthesis", "synthesise"]


class Model(Protocol):
    """What every method returns: public, and a function of noisy answers and public facts alone."""

    @property
    def total(self) -> float:
        """Number of records that the model stands for."""

    def marginal(self, attributes: Iterable[str], /) -> NDArray[np.float64]:
        """Return expected counts of a marginal."""

    def rows(self, n: int, generator: np.random.Generator, /) -> NDArray[np.int64]:
        """Return n rows of label positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A way to make synthetic records.

    Parameters
    ----------
    fit : callable
        Of a curator, constraints, the public total or None, and options.
    options : type
        Its frozen options.
    framework : str
        ``"zcdp"``: the budget is rho. ``"pure"``: it is epsilon.
    keeps_invariants : bool
        Whether it takes exact marginals.
    serves : str
        Which data it is for.
    """

    fit: Callable[[Curator, Constraints, int | None, Any], Model]
    options: type[Any]
    framework: str
    keeps_invariants: bool
    serves: str


METHODS: dict[str, Method] = {
    "pairs": Method(
        fit=fit_pairs,
        options=PairsOptions,
        framework="zcdp",
        keeps_invariants=True,
        serves="up to about 20 million cells: the most accurate here",
    ),
    "aim": Method(
        fit=fit_aim,
        options=AimOptions,
        framework="zcdp",
        keeps_invariants=True,
        serves="more cells than that, a workload of marginals, minutes of time",
    ),
    "mst": Method(
        fit=fit_mst,
        options=MstOptions,
        framework="zcdp",
        keeps_invariants=True,
        serves="many attributes, seconds of time, pairs along a tree",
    ),
    "bayes-net": Method(
        fit=fit_bayes_net,
        options=BayesNetOptions,
        framework="zcdp",
        keeps_invariants=True,
        serves="many attributes that depend on few others each",
    ),
    "generative": Method(
        fit=fit_mixture,
        options=MixtureOptions,
        framework="zcdp",
        keeps_invariants=False,
        serves="many attributes of which many pairs depend on each other, beyond any junction tree",
    ),
    "mwem": Method(
        fit=fit_mwem,
        options=MwemOptions,
        framework="zcdp",
        keeps_invariants=False,
        serves="a table of all cells, few marginals that matter",
    ),
    "mwem-cells": Method(
        fit=fit_mwem_cells,
        options=MwemOptions,
        framework="pure",
        keeps_invariants=False,
        serves="the classical form: pure epsilon, some thousand cells",
    ),
    "pmw": Method(
        fit=fit_pmw,
        options=PmwOptions,
        framework="pure",
        keeps_invariants=False,
        serves="counts that arrive in a sequence: pure epsilon, some thousand cells",
    ),
    "histogram": Method(
        fit=fit_histogram,
        options=HistogramOptions,
        framework="pure",
        keeps_invariants=False,
        serves="fewer cells than records, pure epsilon",
    ),
    "exponential": Method(
        fit=fit_exponential,
        options=HistogramOptions,
        framework="pure",
        keeps_invariants=False,
        serves="fewer cells than records, pure epsilon, counts within {0..n} without clamping; n public",
    ),
    "stability": Method(
        fit=fit_stability,
        options=StabilityOptions,
        framework="pure",
        keeps_invariants=False,
        serves="a domain that is unknown or beyond any table, with some frequent cells",
    ),
    "copula": Method(
        fit=fit_copula,
        options=CopulaOptions,
        framework="zcdp",
        keeps_invariants=False,
        serves="ordered and numeric columns with monotone dependence",
    ),
}
"""Methods by name; `gaussian` serves numbers and stands apart (`das.synthesis.gaussian`)."""


OTHER_NAMES = {"graphical": "pairs"}
"""Further names of methods."""


@dataclass(frozen=True, eq=False)
class Synthesis:
    """A model and what it cost."""

    model: Model
    spent: Spent


def synthesise(
    name: str,
    curator: Curator,
    constraints: Constraints = NO_CONSTRAINTS,
    *,
    total: int | None = None,
    options: Any = None,
) -> Synthesis:
    """Run a method by name.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from das.noise import RunKey
    >>> from das.schema.query import Neighbours
    >>> from das.synthesis.curator import Records
    >>> from das.synthesis.domain import Domain
    >>> records = Records(Domain(("sex", "age"), (2, 3)), np.array([[0, 0], [0, 1], [1, 2], [1, 2]] * 50))
    >>> curator = Curator(records, RunKey.for_testing("doc").streams(b""), framework="zcdp", budget=Fraction(1),
    ...                   neighbours=Neighbours.ADD_REMOVE)
    >>> found = synthesise("pairs", curator, total=200)
    >>> found.spent.total, found.model.rows(200, np.random.default_rng(1)).shape
    (Fraction(1, 1), (200, 2))
    """
    name = OTHER_NAMES.get(name, name)
    if name not in METHODS:
        raise ConfigError(Problem(name, "is not a method", f"there are {', '.join(METHODS)} and gaussian"))
    method = METHODS[name]
    if curator.framework != method.framework:
        reason = f"spends {'rho' if method.framework == 'zcdp' else 'epsilon'}, the budget is stated in the other"
        raise ConfigError(Problem(name, reason, "state the budget that the method spends"))
    if options is not None and not isinstance(options, method.options):
        raise ConfigError(Problem(name, "these are options of another method", f"use {method.options.__name__}"))
    model = method.fit(curator, constraints, total, options)
    return Synthesis(model, curator.spent)
