"""The graphical core against brute force: projections, junction trees, marginals, the fit's optimum, rows."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from das.errors import InfeasibleError
from das.noise import DiscreteGaussian
from das.synthesis.curator import Measurement
from das.synthesis.domain import Constraints, Domain, Invariant, Zero
from das.synthesis.graphical.calibration import calibrate, eliminate
from das.synthesis.graphical.fit import FitOptions, fit
from das.synthesis.graphical.junction_tree import junction_tree
from das.synthesis.graphical.projection import projection
from das.synthesis.rows import systematic_counts
from das.synthesis.rows_kernel import improve

SHAPE = (2, 3, 2, 4, 2)
AXES = tuple(range(5))
SUBSETS = [part for size in (1, 2, 3) for part in combinations(AXES, size)]


def summed(table: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return table.sum(axis=tuple(axis for axis in AXES if axis not in axes))


@settings(max_examples=25, deadline=None)
@given(wanted=st.sets(st.sampled_from(SUBSETS), min_size=1), seed=st.integers(0, 99))
def test_projection_and_its_transpose(wanted: set[tuple[int, ...]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.normal(size=SHAPE)
    plan = projection(AXES, SHAPE, wanted)
    found = plan.marginals(table)
    assert set(found) == wanted
    for axes, marginal in found.items():
        np.testing.assert_allclose(marginal, summed(table, axes), atol=1e-12)
    values = {axes: rng.normal(size=found[axes].shape) for axes in wanted}
    inner = sum((values[axes] * found[axes]).sum() for axes in wanted)
    np.testing.assert_allclose((plan.spread(values) * table).sum(), inner, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(sets=st.sets(st.sampled_from(SUBSETS), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_inference_equals_brute_force(sets: set[tuple[int, ...]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = junction_tree(SHAPE, sets)
    for one in AXES:  # running intersection: the nodes that hold an attribute are connected
        holding = [k for k, node in enumerate(tree.nodes) if one in node]
        links = nx.Graph()
        links.add_nodes_from(holding)
        links.add_edges_from((k, tree.parents[k]) for k in holding if tree.parents[k] in holding)
        assert nx.is_connected(links)
    potentials = [rng.normal(size=tuple(SHAPE[a] for a in node)) for node in tree.nodes]
    potentials[0].reshape(-1)[0] = -np.inf
    whole = np.zeros(SHAPE)
    for node, potential in zip(tree.nodes, potentials, strict=True):
        whole = whole + potential.reshape(tuple(SHAPE[a] if a in node else 1 for a in AXES))
    brute = np.exp(whole)
    tables, log_partition = calibrate(tree, [potential.copy() for potential in potentials])
    assert log_partition == pytest.approx(np.log(brute.sum()))
    brute /= brute.sum()
    for node, table in zip(tree.nodes, tables, strict=True):
        np.testing.assert_allclose(table, summed(brute, node), atol=1e-12)
    for axes in SUBSETS:
        np.testing.assert_allclose(eliminate(tree, tables, axes), summed(brute, axes), atol=1e-12)


DOMAIN = Domain(("a", "b", "c", "d"), (2, 2, 2, 2))


def noisy(pairs: list[tuple[str, ...]], seed: int, total: int = 500) -> list[Measurement]:
    rng = np.random.default_rng(seed)
    table = rng.multinomial(total, rng.dirichlet(np.ones(DOMAIN.size))).reshape(DOMAIN.shape)
    noise = DiscreteGaussian(100)
    out = []
    for each in pairs:
        truth = table.sum(axis=tuple(a for a in range(4) if DOMAIN.names[a] not in each))
        out.append(Measurement(each, truth + rng.integers(-10, 11, truth.shape), noise))
    return out


@pytest.mark.parametrize("pairs", [DOMAIN.subsets(2), [("a", "b"), ("b", "c"), ("c", "d")]])
def test_the_fit_is_the_minimum_of_the_primal_problem(pairs: list[tuple[str, ...]]) -> None:
    """An optimiser on the probabilities themselves, which shares no code, finds nothing better."""
    measured, total, tau = noisy(pairs, 3), 500.0, 0.05
    zero = Zero(("a", "c"), np.array([[False, True], [False, False]]))
    rules = Constraints(zeros=(zero,))
    model = fit(measured, DOMAIN, rules, total=total, options=FitOptions(tau=Fraction(1, 20), tolerance=1e-4))
    possible = np.broadcast_to(rules.possible(DOMAIN.names, DOMAIN.shape), DOMAIN.shape).reshape(-1)

    def loss(p: np.ndarray) -> float:
        table = p.reshape(DOMAIN.shape)
        value = 0.0
        for each in measured:
            gap = table.sum(axis=tuple(a for a in range(4) if DOMAIN.names[a] not in each.attributes)) * total
            # cells that the zero empties are no data
            mask = rules.possible(each.attributes, DOMAIN.shape_of(each.attributes))
            value += float((((each.answers - gap) ** 2)[mask]).sum()) / (2 * each.noise.variance())
        positive = p[p > 0]
        return value + tau * total * float((positive * np.log(positive * possible.sum())).sum())

    def of_logits(logits: np.ndarray) -> float:
        p = np.zeros(DOMAIN.size)
        p[possible] = np.exp(logits - logits.max())
        return loss(p / p.sum())

    mine = model.marginal(DOMAIN.names).reshape(-1) / total
    assert mine[~possible].sum() == 0
    start = np.log(np.maximum(mine[possible], 1e-12))
    better = minimize(of_logits, start, method="L-BFGS-B", options={"maxiter": 2000})
    assert loss(mine) - better.fun < 1e-3 * max(1.0, abs(better.fun))
    cold = minimize(
        of_logits, np.zeros(int(possible.sum())), method="L-BFGS-B", options={"maxiter": 2000, "maxfun": 10**5}
    )
    assert loss(mine) - cold.fun < 1e-3 * max(1.0, abs(cold.fun))


def test_convergence_is_judged_by_chi_square() -> None:
    measured = noisy(DOMAIN.subsets(2), 4)
    good = fit(measured, DOMAIN, total=500).convergence
    assert good.converged
    assert good.chi_square < 1.0
    poor = fit(measured, DOMAIN, total=500, options=FitOptions(iterations=1, from_tau=Fraction(1, 50))).convergence
    assert not poor.converged
    assert poor.chi_square > 3 * good.chi_square


def test_marginals_outside_every_node_equal_brute_force() -> None:
    model = fit(noisy([("a", "b"), ("b", "c"), ("c", "d")], 5), DOMAIN, total=500)
    whole = model.marginal(DOMAIN.names)
    assert len(model.tree.nodes) == 3
    for size in (1, 2, 3):
        for each in DOMAIN.subsets(size):
            expected = whole.sum(axis=tuple(a for a in range(4) if DOMAIN.names[a] not in each))
            np.testing.assert_allclose(model.marginal(each), expected, atol=1e-9)
            np.testing.assert_allclose(model.marginal(each[::-1]), expected.T, atol=1e-9)


def test_two_measurements_of_a_marginal_are_averaged_by_precision() -> None:
    sharp, dull = DiscreteGaussian(25), DiscreteGaussian(100)
    two = [Measurement(("a",), np.array([300, 200]), sharp), Measurement(("a",), np.array([350, 150]), dull)]
    model = fit(two, DOMAIN, total=500, options=FitOptions(tau=Fraction(1, 10**6)))
    np.testing.assert_allclose(model.marginal(("a",)), [310, 190], atol=0.1)


def test_invariants_hold_in_the_model_and_contradictions_are_named() -> None:
    exact = Invariant(("a", "c"), np.array([[100, 50], [0, 350]]))
    model = fit(noisy(DOMAIN.subsets(2), 6), DOMAIN, Constraints(invariants=(exact,)), total=500)
    np.testing.assert_allclose(model.marginal(("a", "c")), exact.counts, atol=1.0)
    assert model.marginal(("a", "c"))[1, 0] == 0
    clash = Constraints(invariants=(exact, Invariant(("c", "d"), np.array([[100, 100], [150, 150]]))))
    with pytest.raises(InfeasibleError, match="disagree on c"):
        clash.check(DOMAIN, 500)
    cycle = Constraints(
        invariants=(
            Invariant(("a", "c"), np.array([[1, 0], [0, 1]])),
            Invariant(("c", "d"), np.array([[1, 0], [0, 1]])),
            Invariant(("a", "d"), np.array([[0, 1], [1, 0]])),
        )
    )
    with pytest.raises(InfeasibleError, match="no cell in which anybody"):
        cycle.check(DOMAIN, 2)
    wide = Constraints(
        invariants=tuple(
            Invariant(each, np.array(counts))
            for each, counts in (
                (("a", "c"), [[9, 1], [1, 9]]),
                (("c", "d"), [[9, 1], [1, 9]]),
                (("a", "d"), [[1, 9], [9, 1]]),
            )
        )
    )
    with pytest.raises(InfeasibleError, match="no distribution meets"):
        wide.check(DOMAIN, 20)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), cells=st.integers(1, 9), groups=st.integers(1, 4))
def test_systematic_counts_stay_within_one_and_sum_exactly(seed: int, cells: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.random((groups, cells)) * (rng.random((groups, cells)) < 0.7)
    weights[:, 0] += 1e-3
    totals = rng.integers(0, 50, groups)
    counts = systematic_counts(totals, weights, rng)
    assert (counts.sum(axis=1) == totals).all()
    shares = weights / weights.sum(axis=1, keepdims=True) * totals[:, None]
    assert (np.abs(counts - shares) <= 1 + 1e-9).all()
    assert (counts[weights == 0] == 0).all()


def test_moves_never_raise_the_distance_and_never_enter_closed_cells() -> None:
    rng = np.random.default_rng(8)
    shape, marginals = (3, 4, 2), [(0, 1), (1, 2), (0, 2)]
    goals = [rng.random((shape[a], shape[b])) for a, b in marginals]
    goals = [goal * 300 / goal.sum() for goal in goals]
    closed = [np.zeros_like(goal, dtype=bool) for goal in goals]
    closed[0][1, 2] = True
    rows = np.stack([rng.integers(0, k, 300) for k in shape], axis=1)
    rows = np.where(((rows[:, 0] == 1) & (rows[:, 1] == 2))[:, None], 0, rows)

    def distance(at: np.ndarray) -> float:
        found = [np.zeros_like(goal) for goal in goals]
        for table, (a, b) in zip(found, marginals, strict=True):
            np.add.at(table, (at[:, a], at[:, b]), 1)
        return sum(float(((t - g)[~c] ** 2).sum()) for t, g, c in zip(found, goals, closed, strict=True))

    order = rng.permutation(300)
    free = np.array([0, 1, 2])
    moved = [improve(rows, shape, marginals, goals, closed, free, order, sweeps=k) for k in (1, 6)]
    assert distance(moved[1]) <= distance(moved[0]) < 0.3 * distance(rows)
    for each in moved:
        assert not ((each[:, 0] == 1) & (each[:, 1] == 2)).any()
    held = improve(rows, shape, marginals, goals, closed, np.array([2]), np.arange(300), sweeps=2)
    assert np.array_equal(held[:, :2], rows[:, :2]), "only free attributes move"
