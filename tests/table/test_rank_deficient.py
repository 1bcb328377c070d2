"""Noise that keeps linear invariants: tables 3.3 and 3.4 of the specification, and the laws behind them."""

from fractions import Fraction
from itertools import permutations
from math import sqrt

import numpy as np
import pytest
from scipy import stats

from das.errors import ConfigError
from das.table.continuous import normals, uniforms
from das.table.k_norm import KNorm
from das.table.projected_gaussian import ProjectedGaussian, chi_mean
from das.table.sensitivity_space import checked_moves, hexagon_moves, orthonormal_basis, square_moves

# Expected L2 cost at mu = 1/10, unclamped: (k, squares only, independent noise for three changes, with hexagons), from
# the Gamma function to 40 digits. The printed table has the same numbers to 0.006: three of its entries (99.00, 423.21
# and 219.78) are one unit off in the last place.
UNCLAMPED = [
    (2, 15.9576912, 79.7604233, 15.9576912),
    (3, 37.5994241, 123.799314, 46.0497019),
    (4, 58.3595564, 167.076277, 71.4755675),
    (5, 78.7605124, 210.021844, 96.4615337),
    (6, 99.0052469, 252.797024, 121.256168),
    (7, 119.16966, 295.473583, 145.95243),
    (8, 139.287583, 338.08807, 170.591753),
    (9, 159.376244, 380.660997, 195.195238),
    (10, 179.445315, 423.204751, 219.774729),
]
PRINTED = [
    (2, 15.96, 79.76, 15.96),
    (3, 37.60, 123.80, 46.05),
    (4, 58.36, 167.08, 71.48),
    (5, 78.76, 210.02, 96.46),
    (6, 99.00, 252.80, 121.26),
    (7, 119.17, 295.47, 145.95),
    (8, 139.29, 338.09, 170.59),
    (9, 159.38, 380.66, 195.20),
    (10, 179.45, 423.21, 219.78),
]


def with_hexagons(k):
    return np.concatenate([square_moves(k, k), hexagon_moves(k, k)]) if k > 2 else square_moves(k, k)


def transfers(cells):
    """The moves of one person when only the total is fixed."""
    moves = np.zeros((cells * (cells - 1), cells), dtype=int)
    for row, (gains, loses) in enumerate(permutations(range(cells), 2)):
        moves[row, gains], moves[row, loses] = 1, -1
    return moves


@pytest.fixture(scope="module")
def bundle(streams):
    return streams.bundle([("test", "", "rank", "deficient")])


@pytest.mark.parametrize(("k", "squares", "naive", "hexagons"), UNCLAMPED)
def test_gaussian_costs_of_table_3_3(k, squares, naive, hexagons):
    assert ProjectedGaussian.for_mu(square_moves(k, k), "1/10").expected_l2() == pytest.approx(squares, rel=1e-8)
    assert 3 * sqrt(2) * chi_mean(k * k) / 0.1 == pytest.approx(naive, rel=1e-8)
    if k <= 5:  # from three by three on the sensitivity is that of a hexagon, sqrt(6)
        assert ProjectedGaussian.for_mu(with_hexagons(k), "1/10").expected_l2() == pytest.approx(hexagons, rel=1e-8)
    assert (sqrt(6) if k > 2 else 2) * chi_mean((k - 1) ** 2) / 0.1 == pytest.approx(hexagons, rel=1e-8)


def test_the_printed_table_has_these_costs():
    assert np.abs(np.array(UNCLAMPED) - np.array(PRINTED)).max() < 0.006


@pytest.mark.parametrize(
    ("moves", "cost", "tolerance"),
    [(square_moves(2, 2), 2.0, 1e-9), (square_moves(3, 3), 6.106, 0.008), (with_hexagons(3), 7.164, 0.009)],
    ids=["k=2", "k=3", "k=3 with hexagons"],
)
def test_k_norm_costs_of_table_3_4(moves, cost, tolerance, bundle):
    mean, error = KNorm(moves, 1).expected_l2(bundle, 100_000)
    assert mean == pytest.approx(cost, abs=tolerance)
    assert error < 0.003
    assert KNorm(moves, "1/10").expected_l2(bundle, 1000)[0] == pytest.approx(10 * cost, rel=0.02)


@pytest.mark.slow
def test_k_norm_cost_of_four_by_four(bundle):
    mean, error = KNorm(square_moves(4, 4), 1).expected_l2(bundle, 100_000)
    assert error < 0.004
    assert mean == pytest.approx(10.707, abs=3 * sqrt(0.012**2 + error**2))


def test_vectors(bundle, vectors):
    for vector in vectors("knorm_cost_times_eps", "hexagon_norm_in_conv_squares"):
        if vector["name"] == "knorm_cost_times_eps":
            k = vector["input"]["k"]
            moves = with_hexagons(k) if "hexagons" in vector["input"]["S"] else square_moves(k, k)
            assert KNorm(moves, 1).expected_l2(bundle, 50_000)[0] == pytest.approx(
                vector["expected"], abs=vector["tol"]
            )
        if vector["name"] == "hexagon_norm_in_conv_squares":
            noise = KNorm(square_moves(3, 3), 1)
            assert noise.norm(hexagon_moves(3, 3)[0]) == pytest.approx(vector["expected"], abs=vector["tol"])


def test_moves_keep_the_margins_and_are_all_there():
    for rows, columns, squares, hexagons in [(2, 2, 2, 0), (3, 3, 18, 12), (3, 4, 36, 48), (4, 4, 72, 192)]:
        for moves, count, size in [
            (square_moves(rows, columns), squares, 4),
            (hexagon_moves(rows, columns), hexagons, 6),
        ]:
            assert len(moves) == len(np.unique(moves, axis=0)) if count else len(moves) == 0
            assert len(moves) == count
            for move in moves.reshape(-1, rows, columns):
                assert not move.sum(axis=0).any()
                assert not move.sum(axis=1).any()
                assert np.abs(move).sum() == size
    assert orthonormal_basis(with_hexagons(4)).shape == (16, 9)


def test_projection_is_conditioning_on_the_invariants():
    k = 3
    noise = ProjectedGaussian(square_moves(k, k), 7)
    invariants = np.array(
        [np.kron(np.eye(k)[i], np.ones(k)) for i in range(k)] + [np.tile(np.eye(k)[j], k) for j in range(k)]
    )
    # Covariance of N(0, 7 I) given A u = 0.
    conditional = 7 * (np.eye(k * k) - invariants.T @ np.linalg.pinv(invariants @ invariants.T) @ invariants)
    assert np.allclose(noise.covariance(), conditional)


def test_projected_draws_keep_margins_and_have_their_covariance(bundle):
    noise = ProjectedGaussian.for_rho(with_hexagons(3), "1/2")
    assert noise.sigma2 == 6
    assert noise.rho(noise.l2_squared) == Fraction(1, 2)
    draws = noise.draw(bundle, 60_000)[0]
    tables = draws.reshape(-1, 3, 3)
    assert np.abs(tables.sum(axis=1)).max() < 1e-12
    assert np.abs(tables.sum(axis=2)).max() < 1e-12
    assert np.allclose(np.cov(draws.T), noise.covariance(), atol=0.12)
    length = np.linalg.norm(draws, axis=1).mean()
    assert length == pytest.approx(noise.expected_l2(), rel=0.01)
    assert length != pytest.approx(1.05 * noise.expected_l2(), rel=0.01)


def test_norms_of_squares_and_hexagons():
    squares, hexagons = KNorm(square_moves(3, 3), 1), KNorm(hexagon_moves(3, 3), 1)
    both = KNorm(with_hexagons(3), 1)
    assert squares.norm(hexagon_moves(3, 3)[3]) == pytest.approx(2)
    assert hexagons.norm(square_moves(3, 3)[3]) == pytest.approx(4 / 3)
    assert max(both.norm(move) for move in both.moves) == pytest.approx(1)
    assert squares.norm(np.eye(9)[0]) == np.inf


def test_facets_lie_on_the_boundary():
    noise = KNorm(with_hexagons(3), 1)
    for facet in noise.facets[::5]:
        assert noise.norm(noise.moves[facet].mean(axis=0)) == pytest.approx(1)


def test_k_norm_draws_have_gamma_norms(bundle):
    noise = KNorm(square_moves(3, 3), "1/2")
    for draws in (noise.draw(bundle, 300)[0], noise.draw_by_uniform_point(bundle, 300)[0]):
        norms = [noise.norm(draw) for draw in draws]
        assert stats.kstest(norms, stats.gamma(4, scale=2).cdf).pvalue > 1e-4
        assert stats.kstest(norms, stats.gamma(5, scale=2).cdf).pvalue < 1e-6


def test_two_samplers_one_law(bundle):
    noise = KNorm(with_hexagons(3), 1)
    first, second = noise.draw(bundle, 40_000)[0], noise.draw_by_uniform_point(bundle, 40_000)[0]
    assert np.abs(first.reshape(-1, 3, 3).sum(axis=1)).max() < 1e-12
    for look in (lambda v: np.linalg.norm(v, axis=1), lambda v: v[:, 0], lambda v: v[:, 0] + v[:, 4]):
        assert stats.ks_2samp(look(first), look(second)).pvalue > 1e-4
    # Gamma(d) in place of Gamma(d + 1) would shrink the noise by d / (d + 1) = 4/5.
    assert stats.ks_2samp(np.linalg.norm(first, axis=1), 0.8 * np.linalg.norm(second, axis=1)).pvalue < 1e-12


def test_cost_agrees_with_the_norm_alone(bundle):
    # E ||v||_2 = d E[rho^(d+1)] / E[rho^d], rho = 1/||theta||_K on uniform directions: no facet is used here.
    noise = KNorm(with_hexagons(3), 1)
    basis = orthonormal_basis(noise.moves)
    directions = normals(bundle, 4 * 900).reshape(-1, 4) @ basis.T
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    radii = np.array([1 / noise.norm(direction) for direction in directions])
    assert 4 * (radii**5).mean() / (radii**4).mean() == pytest.approx(noise.expected_l2(bundle, 50_000)[0], rel=0.012)


def test_a_fixed_total_gives_conditional_laplace(bundle):
    # conv{e_i - e_j} = {sum 0, ||v||_1 <= 2}: Laplace noise of scale 2/epsilon given its sum is this mechanism.
    noise = KNorm(transfers(3), 1)
    assert noise.norm([2, -1, -1]) == pytest.approx(2)
    assert noise.expected_l2(bundle, 200_000)[0] == pytest.approx(2.580, abs=0.003)


def test_draws_follow_their_stream(streams):
    for noise in (KNorm(square_moves(3, 3), 1), ProjectedGaussian(square_moves(3, 3), 1)):
        names = [("t", str(i), "q", noise.name) for i in range(3)]
        together = noise.draw(streams.bundle(names), 50)
        assert together.shape == (3, 50, 9)
        assert np.array_equal(noise.draw(streams.bundle(names[2:]), 20)[0], together[2, :20])
        assert noise.status == "analysis"


def test_uniforms_are_inside_and_uniform(bundle):
    u = uniforms(bundle, 100_000)[0]
    assert 0 < u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > 1e-4
    assert stats.kstest(normals(bundle, 100_000)[0], "norm").pvalue > 1e-4


@pytest.mark.parametrize(
    ("moves", "reason"),
    [
        ([[0.5, -0.5]], "integers"),
        ([1, -1], "integers"),
        ([[0, 0]], "no move"),
        (np.zeros((0, 3), dtype=int), "no move"),
    ],
)
def test_what_is_no_space_of_moves_is_refused(moves, reason):
    with pytest.raises(ConfigError, match=reason):
        checked_moves(moves)


def test_parameters_are_rational():
    with pytest.raises(ConfigError, match="float"):
        KNorm(square_moves(2, 2), 0.5)
    with pytest.raises(ConfigError, match="float"):
        ProjectedGaussian.for_mu(square_moves(2, 2), 0.1)
    with pytest.raises(ConfigError, match="not positive"):
        ProjectedGaussian.for_rho(square_moves(2, 2), 0)
