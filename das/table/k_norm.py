"""The optimal K-norm mechanism: pure differential privacy with noise shaped by the sensitivity space.

For analysis: floating point, not an exact sampler; see ``k_norm.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import factorial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from das.errors import ConfigError, Problem
from das.noise.rational import Rational, positive_rational
from das.noise.stream import Bundle
from das.table.continuous import uniforms
from das.table.sensitivity_space import checked_moves, digest_of, orthonormal_basis


@dataclass(frozen=True, slots=True, init=False, eq=False)
class KNorm:
    """Noise with density proportional to exp(-epsilon ||v||_K) on the span of the moves, K their convex hull.

    K is the smallest norm ball that contains the moves, so every move has norm at most one and costs at most epsilon
    (Hardt and Talwar 2010; that the hull is the best choice: Awan and Slavkovic 2021).

    Parameters
    ----------
    moves : integer matrix
        The sensitivity space: one row for each change of the answers that neighbours can make. Negatives are added.
    epsilon : Fraction
        The loss of a move on the boundary of K; a positive rational.

    Examples
    --------
    >>> from das.table.sensitivity_space import square_moves
    >>> noise = KNorm(square_moves(3, 3), 1)
    >>> noise.rank, len(noise.facets)
    (4, 66)
    """

    moves: NDArray[np.int64]
    epsilon: Fraction
    rank: int = field(init=False)
    facets: NDArray[np.intp] = field(init=False, repr=False)
    shares: NDArray[np.float64] = field(init=False, repr=False)
    status: ClassVar[str] = "analysis"

    def __init__(self, moves: Any, epsilon: Rational) -> None:
        checked = checked_moves(moves)
        points = checked @ orthonormal_basis(checked)
        facets, volumes = _facet_simplices(points)
        object.__setattr__(self, "moves", checked)
        object.__setattr__(self, "epsilon", positive_rational(epsilon, "epsilon"))
        object.__setattr__(self, "rank", points.shape[1])
        object.__setattr__(self, "facets", facets)
        object.__setattr__(self, "shares", np.cumsum(volumes) / volumes.sum())

    @property
    def name(self) -> str:
        """The canonical name: parameter and a digest of the moves."""
        return f"k-norm(epsilon={self.epsilon}, moves={digest_of(self.moves)})"

    def norm(self, change: Any) -> float:
        """Return ||v||_K = min sum(lambda) subject to sum(lambda_i move_i) = v, lambda >= 0: a linear programme.

        The loss of that change is epsilon times this. A change outside the span has norm infinity.
        """
        answer = linprog(np.ones(len(self.moves)), A_eq=self.moves.T, b_eq=np.asarray(change), method="highs")
        return float(answer.fun) if answer.status == 0 else np.inf

    def draw(self, bundle: Bundle, n: int) -> NDArray[np.float64]:
        """Return n noise vectors from each stream, as an array (streams, n, cells).

        A facet simplex (v_1, ..., v_d) is chosen with probability proportional to |det(v_1, ..., v_d)|; the noise is
        sum E_i v_i with independent E_i ~ Exp(epsilon). On the cone over the simplex ||sum E_i v_i||_K = sum E_i, so
        the density there is that of the E_i, epsilon^d exp(-epsilon ||v||_K), over |det|: one function on all cones.
        """
        corners, exponentials = self._corners_and_exponentials(bundle, n, self.rank)
        return _combine(exponentials / float(self.epsilon), corners)

    def draw_by_uniform_point(self, bundle: Bundle, n: int) -> NDArray[np.float64]:
        """Return noise of the same law as r U: U uniform on K, and r ~ Gamma(d + 1, epsilon), d the rank.

        The shape is d + 1. A point of K has norm s with density d s^(d-1), and only shape d + 1 makes r s ~ Gamma(d).
        """
        corners, exponentials = self._corners_and_exponentials(bundle, n, 2 * self.rank + 2)
        inside, radius = np.split(exponentials, 2, axis=2)
        uniform_point = _combine(inside[:, :, 1:] / inside.sum(axis=2, keepdims=True), corners)
        return np.asarray(uniform_point * radius.sum(axis=2, keepdims=True) / float(self.epsilon))

    def expected_l2(self, bundle: Bundle, n: int) -> tuple[float, float]:
        """Return an estimate of E ||noise||_2 from n draws a stream, and its standard error.

        Noise is a boundary point of K times an independent Gamma(d, epsilon) radius, whose mean d / epsilon is used in
        place of draws.
        """
        corners, exponentials = self._corners_and_exponentials(bundle, n, self.rank)
        boundary = _combine(exponentials / exponentials.sum(axis=2, keepdims=True), corners)
        lengths = np.linalg.norm(boundary, axis=2) * self.rank / float(self.epsilon)
        return float(lengths.mean()), float(lengths.std() / np.sqrt(lengths.size))

    def _corners_and_exponentials(
        self, bundle: Bundle, n: int, count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return, for each draw, the corners of a random facet simplex and `count` standard exponentials."""
        u = uniforms(bundle, n * (count + 1)).reshape(bundle.count, n, count + 1)
        facet = self.shares.searchsorted(u[:, :, 0], side="right")
        return self.moves[self.facets[facet]], -np.log(u[:, :, 1:])


def _combine(coefficients: NDArray[np.float64], corners: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(np.einsum("snd,sndc->snc", coefficients, corners))


def _facet_simplices(points: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the facets of the hull cut into simplices, as indices of points, and |det| of each cone over them."""
    dimension = points.shape[1]
    if dimension == 1:
        facets = np.array([[points.argmin()], [points.argmax()]])
        return facets, np.abs(points[facets, 0]).reshape(-1)
    hull = ConvexHull(points, qhull_options="Qt")
    volumes = np.abs(np.linalg.det(points[hull.simplices]))
    # The cones over the simplices must fill the hull, once.
    if abs(volumes.sum() / factorial(dimension) / hull.volume - 1) > 1e-9:
        raise ConfigError(Problem("moves", "the facets of their hull could not be triangulated", "use fewer moves"))
    return hull.simplices.astype(np.intp), volumes
