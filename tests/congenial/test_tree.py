"""The tree's normaliser, density and draws against every table of small worlds; what conditioning costs, exactly."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from das.accounting.conditioning import (
    conditioned_gaussian,
    conditioned_geometric,
    delta_between,
    geometric_vertex_limit,
)
from das.accounting.events import GaussianEvent
from das.congenial.tree import UNBOUNDED, Tree
from das.errors import ConfigError, InfeasibleError
from das.noise import DiscreteGaussian, DiscreteLaplace, RunKey

NOISES = [DiscreteGaussian(2), DiscreteGaussian("1/2"), DiscreteLaplace(1), DiscreteLaplace("1/2"), None]
TWO_LEVELS = (-1, 0, 0, 1, 1, 1, 2, 2)


def bundle_of(text):
    return RunKey.for_testing(text).streams(b"").bundle([("tree", "", "cells", "m")])


def tables(tree):
    """Every table of S*, leaf by leaf, straight from the definition."""
    low, high = tree.box
    for leaves in product(*(range(low[leaf], high[leaf] + 1) for leaf in tree.leaves)):
        counts = [0] * len(tree.parents)
        for leaf, count in zip(tree.leaves, leaves, strict=True):
            counts[leaf] = count
        for node in range(len(counts) - 1, 0, -1):
            counts[tree.parents[node]] += counts[node]
        boxes = zip(counts, tree.lower, tree.upper, strict=True)
        if all(lower <= count <= upper for count, lower, upper in boxes) and min(leaves) >= 0:
            yield leaves, counts


def exact_law(tree, x):
    """Weights of every table as exact rationals: products of the noise's probabilities."""
    true = tree.counts(x).tolist()
    weights = {}
    for leaves, counts in tables(tree):
        weight = Fraction(1)
        for noise, count, centre in zip(tree.noise, counts, true, strict=True):
            if noise is not None:
                weight *= Fraction(noise.pmf(count - centre))
        weights[leaves] = weight
    return weights


@st.composite
def worlds(draw):
    """A laminar tree with fixed nodes, boxes, structural zeros and unmeasured nodes, and a table, not always inside."""
    size = draw(st.integers(2, 8))
    parents = [-1] + [draw(st.integers(0, node - 1)) for node in range(1, size)]
    noise = draw(st.lists(st.sampled_from(NOISES), min_size=size, max_size=size))
    upper = draw(st.lists(st.sampled_from([UNBOUNDED, UNBOUNDED, UNBOUNDED, 5, 3, 0]), min_size=size, max_size=size))
    lower = draw(st.lists(st.sampled_from([0, 0, 0, 0, 1]), min_size=size, max_size=size))
    upper[0] = draw(st.integers(0, 7))
    lower[0] = draw(st.sampled_from([0, upper[0]]))
    try:
        tree = Tree(parents=parents, noise=noise, lower=lower, upper=upper)
    except InfeasibleError:
        assume(False)
    low, high = tree.box
    assume(math.prod(int(high[leaf] - low[leaf] + 1) for leaf in tree.leaves) < 8000)
    return tree, draw(st.lists(st.integers(0, 5), min_size=len(tree.leaves), max_size=len(tree.leaves)))


@settings(max_examples=80)
@given(worlds())
def test_normaliser_and_density_are_those_of_the_enumeration(world):
    tree, x = world
    weights = exact_law(tree, x)
    assume(weights)
    total = sum(weights.values())
    assert math.exp(tree.log_normalizer(x) - math.log(total)) == pytest.approx(1.0, abs=1e-12)
    logs = tree.log_density(list(weights), x)
    truth = np.array([float(weight / total) for weight in weights.values()])
    np.testing.assert_allclose(np.exp(logs), truth, rtol=1e-12)
    outside = [0] * len(tree.leaves)
    outside[0] = 99
    assert tree.log_density(outside, x) == -np.inf


@settings(max_examples=25)
@given(worlds(), st.integers(0, 10**6))
def test_draws_lie_in_the_set_and_say_how_exact_they_are(world, seed):
    tree, x = world
    assume(exact_law(tree, x))
    drawn = tree.draw(x, bundle_of(str(seed)), 40)
    assert set(map(tuple, drawn.counts[:, tree.leaves].tolist())) <= {leaves for leaves, _ in tables(tree)}
    assert (drawn.counts == tree.counts(drawn.counts[:, tree.leaves])).all()
    assert drawn.total_variation < 2.0**-95
    assert drawn.log_ratio < 1e-12
    again = tree.draw(x, bundle_of(str(seed)), 7)
    assert (again.counts == drawn.counts[:7]).all()


def p_value(tree, x, draws):
    """Chi-square of drawn tables against the enumerated law; rare tables are pooled."""
    weights = exact_law(tree, x)
    total = sum(weights.values())
    seen = {}
    for row in map(tuple, draws.tolist()):
        seen[row] = seen.get(row, 0) + 1
    if set(seen) - set(weights):
        return 0.0
    expected = np.array([float(w / total) for w in weights.values()]) * len(draws)
    observed = np.array([seen.get(leaves, 0) for leaves in weights], dtype=float)
    common = expected >= 8
    expected = np.append(expected[common], expected[~common].sum())
    observed = np.append(observed[common], observed[~common].sum())
    keep = expected > 0
    return float(stats.chisquare(observed[keep], expected[keep] * observed.sum() / expected[keep].sum()).pvalue)


@pytest.mark.parametrize(
    ("noise", "other"),
    [(DiscreteGaussian(2), DiscreteGaussian("169/50")), (DiscreteLaplace(1), DiscreteLaplace("13/10"))],
)
def test_draws_have_the_right_law_and_a_wrong_one_is_noticed(noise, other):
    def world(noise, least=0):
        free = (UNBOUNDED,) * 7
        return Tree(parents=TWO_LEVELS, noise=(None,) + (noise,) * 7, lower=(4,) + (least,) * 7, upper=(4, *free))

    x = [2, 0, 0, 1, 1]
    tree, n = world(noise), 20_000
    draws = tree.draw(x, bundle_of("law"), n).counts[:, tree.leaves]
    assert p_value(tree, x, draws) > 1e-6
    wider = world(other).draw(x, bundle_of("law"), n).counts[:, tree.leaves]
    assert p_value(tree, x, wider) < 1e-12  # noise 1.3 times as large
    # Without non-negativity, clamped and mended afterwards: what a careless sampler would do.
    rng = np.random.default_rng(1)
    raw = np.array(x) + noise.draw(bundle_of("raw"), 5 * n).reshape(n, 5)
    clamped = np.maximum(raw, 0)
    mended = np.array([rng.multinomial(4, row / row.sum()) for row in clamped if row.sum()])
    assert p_value(tree, x, mended) < 1e-12


def test_equal_leaves_and_single_children_are_drawn_as_the_enumeration_says():
    """A single child, a measured total and five equal empty leaves: powers, pruning and products at once."""
    noise = DiscreteGaussian(1)
    parents = (-1, 0, 1, 1, 1, 1, 1)
    tree = Tree(parents=parents, noise=(noise,) * 7, lower=(0,) * 7, upper=(6,) + (UNBOUNDED,) * 6)
    draws = tree.draw([0, 0, 0, 0, 0], bundle_of("equal"), 20_000).counts[:, tree.leaves]
    assert p_value(tree, [0, 0, 0, 0, 0], draws) > 1e-6


def moves_within(total, cells):
    """All pairs of tables with one total that differ by one person in another cell."""
    for x in product(range(total + 1), repeat=cells):
        if sum(x) == total:
            for a, b in product(range(cells), repeat=2):
                if a != b and x[a]:
                    yield x, tuple(v - (k == a) + (k == b) for k, v in enumerate(x))


@pytest.mark.parametrize("scale", ["1/2", "1", "2"])
@pytest.mark.parametrize("inner", [True, False], ids=["every node measured", "leaves measured"])
def test_the_loss_of_double_geometric_noise_never_exceeds_the_universal_bound(scale, inner):
    """MATH 5.4 on a tree: the largest log-ratio over all tables and all neighbours."""
    noise = DiscreteLaplace(scale)
    parents = (-1, 0, 0, 1, 1, 2)
    measured = (None, *((noise if inner else None,) * 2), noise, noise, noise)
    tree = Tree(parents=parents, noise=measured, lower=(3, *(0,) * 5), upper=(3, *(UNBOUNDED,) * 5))
    space = [leaves for leaves, _ in tables(tree)]
    logs = {x: tree.log_density(space, x) for x in space}
    worst = 0.0
    for x, other in moves_within(3, 3):
        move = np.abs(tree.counts(x) - tree.counts(other))
        l1 = int(move[[node for node, noise in enumerate(measured) if noise]].sum())
        loss = float((logs[x] - logs[other]).max())
        bound = conditioned_geometric(1 / noise.scale, l1, "nested equalities and box").cost
        assert loss <= float(bound) + 1e-12
        worst = max(worst, loss / float(1 / noise.scale * l1))
    assert worst > 1.0  # non-negativity does cost: the unconditioned bound would be false


@pytest.mark.parametrize("sigma2", ["1", "2", "9/2"])
def test_gaussian_noise_on_nested_totals_keeps_its_rho(sigma2):
    noise = DiscreteGaussian(sigma2)
    tree = Tree(
        parents=(-1, 0, 0, 1, 1, 2), noise=(None, *(noise,) * 5), lower=(3, *(0,) * 5), upper=(3, *(UNBOUNDED,) * 5)
    )
    space = [leaves for leaves, _ in tables(tree)]
    logs = {x: tree.log_density(space, x) for x in space}
    event = GaussianEvent(level="t", query="detailed", sigma2=Fraction(sigma2))
    for x, other in moves_within(3, 3):
        move = tree.counts(x) - tree.counts(other)
        rho = conditioned_gaussian(event, noise.rho(int((move**2).sum())), "nested equalities and box").cost
        for alpha in (1.01, 1.5, 2.0, 5.0, 30.0):
            renyi = float(np.log(np.exp(alpha * logs[x] + (1 - alpha) * logs[other]).sum()) / (alpha - 1))
            assert renyi <= alpha * float(rho) + 1e-10


def test_what_cannot_be_a_tree_is_refused():
    noise = DiscreteGaussian(1)
    with pytest.raises(ConfigError, match="top down"):
        Tree(parents=(-1, 2, 0), noise=(noise,) * 3, lower=(0,) * 3, upper=(9,) * 3)
    with pytest.raises(ConfigError, match="lengths"):
        Tree(parents=(-1, 0), noise=(noise,), lower=(0,) * 2, upper=(9,) * 2)
    with pytest.raises(InfeasibleError, match="node 0"):
        Tree(parents=(-1, 0, 0), noise=(noise,) * 3, lower=(9, 0, 0), upper=(9, 4, 4))
    with pytest.raises(ConfigError, match="neither measured nor bounded"):
        Tree(parents=(-1, 0), noise=(noise, None), lower=(0, 0), upper=(UNBOUNDED, UNBOUNDED)).log_normalizer([3])


def test_a_larger_tree_still_proves_its_errors():
    """Forty leaves, most of them empty, three levels, wide noise: the windows cover sums that empty leaves raise."""
    noise = DiscreteGaussian(25)
    parents = (-1, *(0,) * 5, *(1 + k // 8 for k in range(40)))
    tree = Tree(parents=parents, noise=(noise,) * 46, lower=(0,) * 46, upper=(UNBOUNDED,) * 46)
    x = [30 if k % 9 == 0 else 0 for k in range(40)]
    drawn = tree.draw(x, bundle_of("larger"), 300)
    assert drawn.total_variation < 2.0**-100
    assert drawn.log_ratio < 1e-11
    total = drawn.counts[:, 0].mean()
    assert 150 < total < 200  # empty cells cannot be negative: the law itself is above the truth


def test_the_tree_gives_the_vectors(vectors):
    for vector in vectors("two_bin_cond_dgeo_loss"):
        given_ = vector["input"]
        total, first, other = given_["n"], given_["s1"], given_["s1p"]
        tree = Tree.star(2, DiscreteLaplace(1 / Fraction(str(given_["e0"]))), total=total)
        space = [[s, total - s] for s in range(total + 1)]
        logs = [tree.log_density(space, [s, total - s]) for s in (first, other)]
        assert float((logs[0] - logs[1]).max()) == pytest.approx(vector["expected"], abs=vector["tol"])
    for vector in vectors("cond_dgeo_vertex_limit"):
        epsilon, cells, n = vector["input"]["e0"], vector["input"]["cells"], 90
        tree = Tree.star(cells, DiscreteLaplace(1 / Fraction(str(epsilon))), total=n)
        rest = [0] * (cells - 2)
        loss = tree.log_density([n, 0, *rest], [n, 0, *rest]) - tree.log_density([n, 0, *rest], [n - 1, 1, *rest])
        assert float(loss) - 2 * epsilon == pytest.approx(vector["expected"], abs=1e-9)
        assert geometric_vertex_limit(epsilon, cells) == pytest.approx(vector["expected"], abs=vector["tol"])


def test_the_conditional_discrete_gaussian_of_two_cells():
    """Golden numbers of MATH section 8: n = 20, sigma2 = 4, five against six."""
    tree = Tree.star(2, DiscreteGaussian(4), total=20)
    space = [[s, 20 - s] for s in range(21)]
    p, q = (np.exp(tree.log_density(space, [s, 20 - s])) for s in (5, 6))
    for epsilon, delta in ((0.25, 0.1801313), (0.5, 0.1293355), (1.0, 0.0427846)):
        assert delta_between(p, q, epsilon) == pytest.approx(delta, abs=5e-8)
