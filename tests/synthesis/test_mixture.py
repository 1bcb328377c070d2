"""The mixture of products against brute force: marginals, gradients, the fit, rows with structural zeros."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.synthesis.domain import Constraints, Domain, Zero
from das.synthesis.mixture import MixtureModel
from das.synthesis.mixture_fit import Goal, Goals, Mixture, _gradients, _softmax, fitted

SHAPE = (2, 3, 4)
SETS = [(0,), (1,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]


def mixture_of(logits: list[np.ndarray]) -> Mixture:
    return Mixture(_softmax(logits[0]), tuple(_softmax(each) for each in logits[1:]))


def random_logits(seed: int, components: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=components), *(rng.normal(size=(components, size)) for size in SHAPE)]


def whole(mixture: Mixture) -> np.ndarray:
    return np.einsum("k,ka,kb,kc->abc", mixture.weights, *mixture.tables)


@settings(max_examples=20)
@given(seed=st.integers(0, 9_999), axes=st.sampled_from(SETS))
def test_marginals_are_sums_of_the_table_of_all_cells(seed: int, axes: tuple[int, ...]) -> None:
    mixture = mixture_of(random_logits(seed))
    brute = whole(mixture).sum(axis=tuple(axis for axis in range(3) if axis not in axes))
    np.testing.assert_allclose(mixture.marginal(axes), brute.reshape(-1), atol=1e-12)


@settings(max_examples=15)
@given(seed=st.integers(0, 9_999))
def test_gradients_are_those_of_the_stated_objective(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = random_logits(seed)
    goals = Goals(
        tuple(
            Goal(axes, rng.dirichlet(np.ones(size)), rng.random(size))
            for axes in SETS
            for size in [int(np.prod([SHAPE[a] for a in axes]))]
        ),
        penalty=0.3,
    )

    def objective(at: list[np.ndarray]) -> float:
        mixture = mixture_of(at)
        value = sum(float((g.weight * (mixture.marginal(g.axes) - g.shares) ** 2).sum()) for g in goals.marginals)
        for table in mixture.tables:
            joint = mixture.weights[:, None] * table
            value += goals.penalty * float((joint * np.log(table / (mixture.weights @ table))).sum())
        return value

    for place, gradient in enumerate(_gradients(mixture_of(logits), goals)):
        direction = rng.normal(size=gradient.shape)
        moved = [
            [each + sign * 1e-5 * direction if k == place else each for k, each in enumerate(logits)]
            for sign in (1, -1)
        ]
        slope = (objective(moved[0]) - objective(moved[1])) / 2e-5
        assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_a_mixture_is_found_again_from_its_marginals() -> None:
    truth = mixture_of(random_logits(5, components=2))
    goals = Goals(tuple(Goal(axes, truth.marginal(axes), np.ones(len(truth.marginal(axes)))) for axes in SETS))
    found = fitted(Mixture.start(SHAPE, 12), goals, steps=800)
    assert np.abs(whole(found) - whole(truth)).sum() < 0.02
    assert np.abs(whole(Mixture.start(SHAPE, 12)) - whole(truth)).sum() > 0.2


def test_rows_keep_zeros_and_follow_the_model() -> None:
    domain = Domain(("a", "b", "c"), SHAPE)
    impossible = np.zeros((2, 3), dtype=bool)
    impossible[0, 1:] = True
    model = MixtureModel(
        domain, Constraints(zeros=(Zero(("a", "b"), impossible),)), 2_000.0, mixture_of(random_logits(1))
    )
    rows = model.rows(2_000, np.random.default_rng(1))
    found = np.zeros(SHAPE)
    np.add.at(found, tuple(rows.T), 1)
    assert found[0, 1:].sum() == 0
    assert model.marginal(("b", "a"))[1:, 0].sum() == 0
    assert np.abs(found.sum(axis=2) - model.marginal(("a", "b"))).sum() / 2_000 < 0.01
