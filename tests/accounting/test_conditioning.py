"""Conditioning rules against exact laws on small worlds: the bounds hold, and where they are refused they fail."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from das.accounting.conditioning import (
    SamplerError,
    conditional_law,
    conditioned_gaussian,
    conditioned_geometric,
    delta_between,
    geometric_loss,
    geometric_vertex_limit,
    with_sampler_error_upper,
)
from das.accounting.events import GaussianEvent, LaplaceEvent, NotSupported
from das.accounting.small_table.dataspace import TableFacts, data_space
from das.accounting.small_table.margins import margin_invariants
from das.errors import ConfigError


def gaussian(sigma2: str, support: str = "integers") -> GaussianEvent:
    return GaussianEvent(level="t", query="detailed", sigma2=Fraction(sigma2), support=support)


def two_bins(n: int) -> list[list[int]]:
    return [[s, n - s] for s in range(n + 1)]


EVALUATIONS = {
    "two_bin_cond_dgeo_loss": lambda i: geometric_loss(
        two_bins(i["n"]), [i["s1"], i["n"] - i["s1"]], [i["s1p"], i["n"] - i["s1p"]], i["e0"]
    ),
    "cond_dgeo_universal_bound_within_class": lambda i: (
        conditioned_geometric(Fraction(i["e0"]), 2, "equalities and box").cost
    ),
    "cond_dgeo_vertex_limit": lambda i: geometric_vertex_limit(i["e0"], i["cells"]),
}


def test_vectors(vectors) -> None:
    conditioned = vectors(*EVALUATIONS)
    assert len(conditioned) == 10
    for vector in conditioned:
        got = float(EVALUATIONS[vector["name"]](vector["input"]))
        assert got == pytest.approx(vector["expected"], abs=max(vector["tol"], 2e-12)), vector


def test_known_values() -> None:
    assert conditioned_geometric(Fraction(1, 20), 2, "equalities and box").cost == pytest.approx(0.1909028, abs=1e-7)
    # two-person squares at 0.5 a cell: 1.209 on top of 2
    assert conditioned_geometric(Fraction(1, 2), 4, "equalities and box").cost == pytest.approx(3.209, abs=1e-3)
    assert geometric_loss(two_bins(20), [5, 15], [6, 14], 0.5) == pytest.approx(1.00114675, abs=1e-8)
    for epsilon, gamma in [(0.1, 0.909), (0.5, 0.664), (1.0, 0.490), (2.0, 0.312), (5.0, 0.138)]:
        bound = conditioned_geometric(Fraction(epsilon) / 2, 2, "equalities and box").cost
        assert bound / epsilon - 1 == pytest.approx(gamma, abs=6e-4)


def test_the_bound_is_approached_by_a_concentrated_table() -> None:
    bound = conditioned_geometric(Fraction(1, 2), 2, "equalities and box").cost
    assert 1 + geometric_vertex_limit(0.5, 40) == pytest.approx(bound, abs=1e-7)
    space = data_space(TableFacts(cells=4, records=12, values=()))
    loss = geometric_loss(space, [12, 0, 0, 0], [11, 1, 0, 0], 0.5)
    assert loss == pytest.approx(1 + geometric_vertex_limit(0.5, 4), abs=1e-3)
    assert loss <= bound


@st.composite
def boxed_lattices(draw: st.DrawFn) -> np.ndarray:
    """All integer points of a random box with random equalities through its middle; any move between them."""
    cells = draw(st.integers(2, 4))
    low = np.array(draw(st.lists(st.integers(-2, 0), min_size=cells, max_size=cells)))
    high = np.array(draw(st.lists(st.integers(0, 3), min_size=cells, max_size=cells)))
    rows = np.array(draw(st.lists(st.tuples(*[st.integers(-1, 2)] * cells), max_size=2)), dtype=int).reshape(-1, cells)
    grid = np.array(list(product(*(range(a, b + 1) for a, b in zip(low, high, strict=True)))))
    return grid[~np.any(grid @ rows.T, axis=1)]


@settings(max_examples=60)
@given(boxed_lattices(), st.sampled_from([0.05, 0.3, 1.0, 2.5]))
def test_the_box_bound_holds_for_every_move_not_only_unit_ones(space: np.ndarray, epsilon: float) -> None:
    chosen = space[:: max(1, len(space) // 12)]
    for x, other in permutations(chosen, 2):
        size = int(np.abs(x - other).sum())
        bound = conditioned_geometric(Fraction(epsilon), size, "equalities and box").cost
        assert geometric_loss(space, x, other, epsilon) <= bound * (1 + 1e-12)
        assert bound <= conditioned_geometric(Fraction(epsilon), size, "any").cost * (1 + 1e-12)


@settings(max_examples=30)
@given(boxed_lattices(), st.sampled_from([0.05, 0.3, 1.0]))
def test_effective_epsilon_is_the_largest_log_ratio(space: np.ndarray, epsilon: float) -> None:
    event = LaplaceEvent(level="t", query="detailed", scale=1 / Fraction(epsilon))
    for x, other in permutations(space[:5], 2):
        ratio = np.log(conditional_law(space, x, event) / conditional_law(space, other, event))
        assert geometric_loss(space, x, other, epsilon) == pytest.approx(ratio.max(), abs=1e-9)


def renyi_ratio(space: np.ndarray, sigma2: float) -> float:
    """Largest D_alpha / (alpha |m|^2 / 2 sigma2) over pairs of points and a grid of orders."""
    event = gaussian(str(sigma2))
    worst = 0.0
    for x, other in permutations(space, 2):
        p, q = (np.log(conditional_law(space, centre, event)) for centre in (x, other))
        for order in (1.05, 1.3, 2.0, 3.0, 5.0, 9.0, 20.0, 60.0):
            divergence = float(logsumexp(order * p + (1 - order) * q)) / (order - 1)
            worst = max(worst, divergence / (order * float(((x - other) ** 2).sum()) / (2 * sigma2)))
    return worst


@pytest.mark.parametrize("sigma2", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("cells", [2, 3])
def test_nested_totals_keep_rho_where_it_was_tested(sigma2: float, cells: int) -> None:
    space = data_space(TableFacts(cells=cells, records=5, values=()))
    assert renyi_ratio(space, sigma2) <= 1 + 1e-9
    got = conditioned_gaussian(gaussian(str(sigma2)), Fraction(1), "nested equalities and box")
    assert got.status == "conditioning: numerically verified, not proved"


def test_the_refused_case_really_fails() -> None:
    polytope = np.array([[0, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 0], [0, 0, 1], [2, -1, 0], [2, 0, -1]])
    assert renyi_ratio(polytope, 0.3) > 1.04
    assert isinstance(conditioned_gaussian(gaussian("3/10"), Fraction(1), "convex"), NotSupported)
    assert isinstance(conditioned_gaussian(gaussian("7/10"), Fraction(1), "nested equalities and box"), NotSupported)
    assert isinstance(conditioned_gaussian(gaussian("4"), Fraction(1), "equalities and box"), NotSupported)


def test_proved_cases_are_called_proved() -> None:
    assert conditioned_gaussian(gaussian("4"), Fraction(1, 4), "equalities").status == "proved"
    for constraints in ("equalities", "equalities and box", "nested equalities and box", "convex"):
        got = conditioned_gaussian(gaussian("1/10", "reals"), Fraction(1, 4), constraints)
        assert (got.cost, got.status) == (Fraction(1, 4), "proved")
    assert isinstance(conditioned_gaussian(gaussian("4", "reals"), Fraction(1), "any"), NotSupported)


def test_equalities_alone_leave_the_normaliser_constant() -> None:
    # margins of a 3 by 3 table, counts of any sign within reach: a coset of the kernel, cut far away
    rows = np.array(margin_invariants((2, 2), [(0,), (1,)]))
    steps = np.array([[k, -k, -k, k] for k in range(-40, 41)])
    assert not np.any(steps @ rows.T)
    loss = geometric_loss(steps, [0, 0, 0, 0], [1, -1, -1, 1], 0.5)
    assert loss == pytest.approx(float(conditioned_geometric(Fraction(1, 2), 4, "equalities").cost), abs=1e-12)


def test_conditional_discrete_gaussian_of_two_cells() -> None:
    space, event = np.array(two_bins(20)), gaussian("4")
    p, q = conditional_law(space, [5, 15], event), conditional_law(space, [6, 14], event)
    for epsilon, expected, bound in [
        (0.25, 0.1801313, 0.314792),
        (0.5, 0.1293355, 0.224225),
        (1.0, 0.0427846, 0.088217),
    ]:
        assert delta_between(p, q, epsilon) == pytest.approx(expected, abs=2e-7)
        assert max(delta_between(p, q, epsilon), delta_between(q, p, epsilon)) < bound


def test_post_processing_that_depends_on_the_data_is_not_free() -> None:
    # an occupied facility stays occupied: output 0 has probability 0.62246 for one data set and 0 for its neighbour
    q = math.exp(-0.5)
    reach = np.arange(-200, 201)
    law = (1 - q) / (1 + q) * q ** np.abs(reach)
    empty = law[reach <= 0].sum()
    assert empty == pytest.approx(0.62246, abs=1e-5)


def test_cost_of_an_inexact_sampler() -> None:
    # two laws at distance eta from randomised response: delta grows by at most (1 + e^epsilon) eta
    eta, epsilon = 0.01, 0.7
    p = np.array([0.5, 0.3, 0.2])
    q = np.array([0.3, 0.3, 0.4])
    delta = delta_between(p, q, epsilon) + 1e-6
    error = SamplerError(total_variation=Fraction(eta), status="proved")
    bound = float(with_sampler_error_upper(epsilon, Fraction(delta), error))
    rng = np.random.default_rng(5)
    for _ in range(200):
        shifts = [np.roll([eta, -eta, 0.0], int(rng.integers(3))) for _ in range(2)]
        assert delta_between(p + shifts[0], q + shifts[1], epsilon) <= bound
    assert isinstance(
        with_sampler_error_upper(1.0, Fraction(1, 100), SamplerError(total_variation=Fraction(0), status="empirical")),
        NotSupported,
    )


def test_bad_moves_are_named_errors() -> None:
    with pytest.raises(ConfigError, match="negative"):
        conditioned_geometric(Fraction(1), -1, "equalities")
