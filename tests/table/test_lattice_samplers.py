"""Noise on the lattice of moves: enumerated laws accepted and wrong scales rejected, totals in every draw, costs."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial import ConvexHull
from scipy.special import chdtrc, logsumexp

from das.accounting.small_table.dataspace import TableFacts
from das.accounting.small_table.enumeration import net_moves
from das.accounting.small_table.margins import margin_invariants
from das.errors import ConfigError
from das.noise import RunKey
from das.table.exact_coins import draw_shifted_gaussian, shifted_mass_ratio, toss_exp, toss_shifted_mass
from das.table.example import COUNTS, SEX_BY_AGE
from das.table.lattice import MoveLattice, equality_rows, move_lattice
from das.table.lattice_gaussian import LatticeGaussian
from das.table.lattice_k_norm import LatticeKNorm, solved_by
from das.table.neighbours import Neighbours, neighbours_of
from das.table.norm_body import HullNorm, MaximumNorm, NormBody
from das.table.sensitivity_space import hexagon_moves, orthonormal_basis, square_moves

STREAMS = RunKey.for_testing("lattices").streams(b"")


def margins(*shape: int, n: int = 60) -> TableFacts:
    """Both margins of a random table."""
    x = np.random.default_rng(sum(shape)).multinomial(n, np.full(math.prod(shape), 1 / math.prod(shape)))
    rows = margin_invariants(shape, [(axis,) for axis in range(len(shape))])
    return TableFacts(cells=len(x), invariants=rows, values=tuple((np.array(rows) @ x).tolist()), records=n)


@cache
def near_margins(*shape: int) -> Neighbours:
    return neighbours_of(margins(*shape, n=500), None if len(shape) == 2 else 4)


WORLDS = {
    "a total": TableFacts(cells=3, values=(), records=9),
    "2 x 2": margins(2, 2),
    "2 x 3": margins(2, 3),
    "3 x 3": margins(3, 3),
    "nested": TableFacts(cells=5, invariants=((1, 1, 0, 0, 0),), values=(4,), records=9),
    "crossing": TableFacts(cells=6, invariants=((1, 1, 1, 0, 0, 0), (0, 1, 1, 0, 1, 1)), values=(4, 4), records=7),
    "a zero": TableFacts(cells=4, values=(), records=9, zeros=frozenset({2})),
    "weights": TableFacts(cells=4, invariants=((1, 2, 3, 0),), values=(8,), records=6),
}


def every_move(lattice: MoveLattice, reach: int) -> NDArray[np.int64]:
    """All combinations of the basis within a box of coefficients."""
    span = np.array(list(product(range(-reach, reach + 1), repeat=lattice.rank)), dtype=np.int64)
    return span @ lattice.basis


def p_value(draws: NDArray[np.int64], moves: NDArray[np.int64], logs: NDArray[np.float64]) -> float:
    """Chi-square of draws against weights; moves that are expected less than five times are taken together."""
    weights = np.exp(logs - logs.max())
    expected = weights / weights.sum() * len(draws)
    place = {move.tobytes(): i for i, move in enumerate(moves)}
    seen = np.bincount([place[np.ascontiguousarray(draw).tobytes()] for draw in draws], minlength=len(moves))
    often = expected >= 5
    observed, wanted = seen[often], expected[often]
    if (rest := expected[~often].sum()) > 1:
        observed, wanted = np.append(observed, seen[~often].sum()), np.append(wanted, rest)
    return float(chdtrc(len(wanted) - 1, ((observed - wanted) ** 2 / wanted).sum()))


@pytest.mark.parametrize("name", WORLDS)
def test_the_lattice_holds_all_moves_and_no_others(name: str) -> None:
    facts = WORLDS[name]
    lattice, rows = move_lattice(facts), equality_rows(facts)
    assert not (rows @ lattice.basis.T).any()
    found = {tuple(move) for move in every_move(lattice, 6).tolist() if max(map(abs, move)) <= 1}
    box = np.array(list(product((-1, 0, 1), repeat=facts.cells)))
    kept = box[~(rows @ box.T).any(axis=0) & ~box[:, sorted(facts.zeros)].any(axis=1)]
    assert found == {tuple(move) for move in kept.tolist()}
    mu, lengths = lattice.gram_schmidt
    assert math.prod(lengths) == pytest.approx(float(np.linalg.det(lattice.basis @ lattice.basis.T)))
    assert all(len(row) == i for i, row in enumerate(mu))


@pytest.mark.parametrize("name", WORLDS)
def test_gaussian_draws_have_the_enumerated_law(name: str) -> None:
    lattice = move_lattice(WORLDS[name])
    noise = LatticeGaussian(lattice, Fraction(3, 2))
    draws = noise.draw(STREAMS.bundle([("test", name, "", noise.name)]), 900)[0]
    moves = every_move(lattice, 12 if lattice.rank < 3 else 7)
    squares = (moves * moves).sum(axis=1)
    assert p_value(draws, moves, -squares / 3) > 1e-5
    assert p_value(draws, moves, -squares / 3 / 1.6) < 1e-6
    assert not (equality_rows(WORLDS[name]) @ draws.T).any()


@pytest.mark.parametrize("sigma2", ["1/4"])
def test_small_noise_uses_the_coins(sigma2: str) -> None:
    lattice = move_lattice(WORLDS["3 x 3"])
    noise = LatticeGaussian(lattice, Fraction(sigma2))
    assert noise.acceptance_lower() < 0.9
    draws = noise.draw(STREAMS.bundle([("test", "small", "", noise.name)]), 900)[0]
    moves = every_move(lattice, 4)
    squares = (moves * moves).sum(axis=1)
    assert p_value(draws, moves, -squares / (2 * float(noise.sigma2))) > 1e-5


def hull_norm(moves: NDArray[np.int64]) -> Any:
    """The K-norm from the facets of the hull, in doubles: independent of every linear programme."""
    basis = orthonormal_basis(moves)
    points = np.concatenate([moves, -moves]) @ basis
    if points.shape[1] == 1:
        return lambda v: np.abs(v @ basis)[:, 0] / np.abs(points).max()
    facets = ConvexHull(points).equations
    return lambda v: ((v @ basis) @ (facets[:, :-1] / -facets[:, -1:]).T).max(axis=1)


@pytest.mark.parametrize(
    "name", ["a total", "2 x 2", "2 x 3", pytest.param("3 x 3", marks=pytest.mark.slow), "nested", "crossing", "a zero"]
)
def test_k_norm_draws_have_the_enumerated_law(name: str) -> None:
    near = neighbours_of(WORLDS[name])
    noise = LatticeKNorm(near.facts, near.lattice, near.body, Fraction(3))
    draws = noise.draw(STREAMS, 500)
    moves = every_move(near.lattice, {4: 8, 3: 16}.get(near.lattice.rank, 40))
    norms = hull_norm(net_moves(near.moving, near.adjacency))(moves)
    assert p_value(draws, moves, -3 * norms) > 1e-5
    assert p_value(draws, moves, -3 * norms / 1.5) < 1e-5
    assert not (equality_rows(near.facts) @ draws.T).any()
    # the claim: no outcome is more than e^epsilon times as likely for a neighbour, and some one is
    changes = net_moves(near.moving, near.adjacency)
    few = moves[np.abs(moves).sum(axis=1) <= 8]
    ratios = [3 * (hull_norm(changes)(few - change) - hull_norm(changes)(few)).max() for change in changes[:30]]
    assert max(ratios) <= 3 + 1e-9
    assert max(ratios) > 3 - 1e-9


@pytest.mark.parametrize(
    ("facts", "body"),
    [
        (WORLDS["nested"], MaximumNorm(4)),
        (WORLDS["crossing"], None),
        (TableFacts(cells=8, invariants=((1,) * 4 + (0,) * 4, (1, 1, 0, 0) * 2), values=(5, 5), records=9), None),
    ],
    ids=["nested", "crossing", "two by two of two"],
)
def test_closed_norms_are_those_of_the_hull(facts: TableFacts, body: NormBody | None) -> None:
    near = neighbours_of(facts)
    closed = body or near.body
    assert isinstance(near.body, MaximumNorm)
    free = tuple(cell for part in near.lattice.components for cell in solved_by(facts, part)[0].tolist())
    hull = HullNorm(net_moves(near.moving, near.adjacency), free)
    coefficients = np.random.default_rng(1).integers(-3, 4, (25, near.lattice.rank))
    for move in coefficients @ near.lattice.basis:
        assert closed.norm(move) == hull.norm(move)


def test_both_solutions_of_a_norm_agree() -> None:
    moves = np.concatenate([square_moves(3, 3), hexagon_moves(3, 3)])
    free = (0, 1, 3, 4)
    for body in (HullNorm(moves, free), HullNorm(hexagon_moves(3, 3), free)):
        oracle = hull_norm(body.moves)
        for z in np.random.default_rng(2).integers(-4, 5, (12, 4)):
            v = z @ move_lattice(WORLDS["3 x 3"]).basis
            assert body.norm(v) == body.exactly(v[list(free)])
            assert float(body.norm(v)) == pytest.approx(oracle(v[None])[0])
    assert HullNorm(hexagon_moves(3, 3), free).norm(square_moves(3, 3)[0]) == Fraction(4, 3)


def test_a_wrong_proposal_of_the_solver_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    from das.table import norm_body

    class Wrong:
        status = 0
        x = np.zeros(36)

        class eqlin:
            marginals = np.zeros(4)

    body = HullNorm(square_moves(3, 3), (0, 1, 3, 4))
    monkeypatch.setattr(norm_body, "linprog", lambda *_, **__: Wrong())
    assert body.norm(hexagon_moves(3, 3)[0]) == 2


# Expected L2 cost at mu = 1/10 (rho = 1/200), with hexagons from three by three on: table 3.3 of the specification.
TABLE_3_3 = {2: 15.96, 3: 46.05, 4: 71.48, 5: 96.46, 7: 145.95, 10: 219.78}


@pytest.mark.parametrize("k", [pytest.param(k, marks=pytest.mark.slow if k > 5 else ()) for k in TABLE_3_3])
def test_gaussian_costs_of_table_3_3(k: int) -> None:
    near = near_margins(k, k)
    noise = LatticeGaussian(near.lattice, near.l2_squared / (2 * Fraction(1, 200)))
    assert noise.expected_l2() == pytest.approx(TABLE_3_3[k], abs=0.01)
    draws = noise.draw(STREAMS.bundle([("test", str(k), "cost", noise.name)]), max(12, 1200 // k**2))[0]
    lengths = np.linalg.norm(draws, axis=1)
    error = lengths.std() / math.sqrt(len(lengths))
    assert abs(lengths.mean() - TABLE_3_3[k]) < 4 * error
    assert abs(lengths.mean() - 2 * TABLE_3_3[k]) > 8 * error


@pytest.mark.parametrize(("k", "cost", "draws"), [(2, 20.0, 1500), pytest.param(3, 71.6, 250, marks=pytest.mark.slow)])
def test_k_norm_costs_of_table_3_4(k: int, cost: float, draws: int) -> None:
    near = near_margins(k, k)
    noise = LatticeKNorm(near.facts, near.lattice, near.body, Fraction(1, 10))
    lengths = np.linalg.norm(noise.draw(STREAMS, draws), axis=1)
    assert abs(lengths.mean() - cost) < 4 * lengths.std() / math.sqrt(draws)


@pytest.mark.slow
def test_k_norm_cost_of_four_by_four_with_hexagons() -> None:
    near = near_margins(4, 4)
    noise = LatticeKNorm(near.facts, near.lattice, near.body, Fraction(1, 10))
    lengths = np.linalg.norm(noise.draw(STREAMS, 150), axis=1)
    assert abs(lengths.mean() - 147) < 4 * math.hypot(1, lengths.std() / math.sqrt(150))


def test_the_published_table_keeps_its_totals() -> None:
    near = neighbours_of(SEX_BY_AGE)
    gaussian = LatticeGaussian(near.lattice, near.l2_squared / Fraction(1))
    k_norm = LatticeKNorm(SEX_BY_AGE, near.lattice, near.body, Fraction(1))
    rows = equality_rows(SEX_BY_AGE)
    noise = [gaussian.draw(STREAMS.bundle([("t", "", "", "g")]), 30)[0], k_norm.draw(STREAMS, 30)]
    for drawn in noise:
        tables = drawn + np.array(COUNTS)
        assert np.array_equal(rows @ tables.T, np.outer([256, 130, 213], np.ones(30, dtype=int)))
        assert drawn.any(axis=1).all()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 7), (3, 5), (4, 4), (10, 10), (2, 3, 3)])
def test_random_tables_keep_their_margins(shape: tuple[int, ...]) -> None:
    near = near_margins(*shape)
    facts = near.facts
    noise = LatticeGaussian(near.lattice, Fraction(30))
    draws = noise.draw(STREAMS.bundle([("test", str(shape), "", noise.name)]), 12)[0]
    assert not (np.array(facts.invariants) @ draws.T).any()
    if math.prod(shape) <= 16:
        drawn = LatticeKNorm(facts, near.lattice, near.body, Fraction(1)).draw(STREAMS, 4)
        assert not (np.array(facts.invariants) @ drawn.T).any()


def test_draws_are_functions_of_stream_and_place() -> None:
    near = neighbours_of(WORLDS["2 x 3"])
    gaussian = LatticeGaussian(near.lattice, Fraction(5))
    names = [("t", str(i), "q", gaussian.name) for i in range(2)]
    together = gaussian.draw(STREAMS.bundle(names), 6)
    assert np.array_equal(gaussian.draw(STREAMS.bundle(names[1:]), 3)[0], together[1, :3])
    k_norm = LatticeKNorm(near.facts, near.lattice, near.body, Fraction(1))
    assert np.array_equal(k_norm.draw(STREAMS, 6)[:3], k_norm.draw(STREAMS, 3))


def test_renyi_divergences_are_within_the_claim() -> None:
    lattice = move_lattice(WORLDS["2 x 3"])
    moves = every_move(lattice, 14)
    for sigma2 in (0.4, 1.5):
        for change in lattice.basis[:2]:
            p, q = (-((moves - shift) ** 2).sum(axis=1) / (2 * sigma2) for shift in (change, 0))
            p, q = p - logsumexp(p), q - logsumexp(q)
            for order in (1.3, 2.0, 3.7):
                divergence = logsumexp(order * p + (1 - order) * q) / (order - 1)
                claimed = order * float(LatticeGaussian(lattice, Fraction(str(sigma2))).rho(int(change @ change)))
                assert divergence <= claimed * (1 + 1e-9)
                assert divergence > 0.5 * claimed


def test_coins_and_shifted_draws() -> None:
    k = np.arange(-60, 61)
    for shift, variance in [(Fraction(1, 2), Fraction(1, 20)), (Fraction(2, 7), Fraction(1, 4)), (Fraction(1, 3), 3)]:
        lower, upper = shifted_mass_ratio(shift, Fraction(variance), 80)
        exact = np.exp(
            logsumexp(-((k - float(shift)) ** 2) / (2 * float(variance))) - logsumexp(-(k**2) / (2 * float(variance)))
        )
        assert lower <= upper
        assert lower / 2**80 == pytest.approx(exact, rel=1e-12)
        bits = STREAMS.bits(("coin", str(shift), "", ""))
        tosses = np.mean([toss_shifted_mass(bits, shift, Fraction(variance)) for _ in range(3000)])
        assert abs(tosses - exact) < 5 * math.sqrt(exact * (1 - exact) / 3000) + 1e-3
    bits = STREAMS.bits(("shifted", "", "", ""))
    draws = np.array([[draw_shifted_gaussian(bits, Fraction(7, 3), Fraction(2))] for _ in range(4000)])
    places = np.arange(-12, 17)[:, None]
    assert p_value(draws, places, -((places[:, 0] - 7 / 3) ** 2) / 4) > 1e-5
    assert p_value(draws, places, -((places[:, 0] - 7 / 3) ** 2) / 5.6) < 1e-9
    # a word on the threshold reads on: e^-1 begins with these 64 digits
    word = 6786177901268885274
    assert toss_exp(word, lambda count: 0, Fraction(1))
    assert not toss_exp(word, lambda count: (1 << count) - 1, Fraction(1))


def test_what_cannot_be_exact_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    big = near_margins(10, 10)
    with pytest.raises(ConfigError, match=r"k-norm: .*corners.*gaussian"):
        _ = big.body
    with pytest.raises(ConfigError, match="too small for this lattice"):
        LatticeGaussian(big.lattice, Fraction(1, 50))
    with pytest.raises(ConfigError, match="fractions"):
        solved_by(WORLDS["weights"], np.arange(4)[::-1])
    with pytest.raises(ConfigError, match="dimensions"):
        move_lattice(TableFacts(cells=400, values=(), records=9))
    monkeypatch.setattr("das.table.lattice_k_norm.TRIAL_PROPOSALS", 1 << 14)
    wide = margins(4, 8, n=300)
    for epsilon in ("1/2", "1/200"):  # the second has noise beyond the table of the fast sampler
        with pytest.raises(ConfigError, match=r"rejection.*gaussian"):
            LatticeKNorm(wide, move_lattice(wide), MaximumNorm(6), Fraction(epsilon)).trial()
