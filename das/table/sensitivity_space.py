"""Sensitivity spaces: the changes of the answers that neighbouring data sets can make, as rows of an integer matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import combinations, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, Problem


def square_moves(rows: int, columns: int) -> NDArray[np.int64]:
    """Return the moves that two people can make in a table without touching a row or column total.

    One leaves (i, j) for (i, l), the other (k, l) for (k, j): four cells change by one.

    Examples
    --------
    >>> square_moves(2, 2).tolist()
    [[1, -1, -1, 1], [-1, 1, 1, -1]]
    >>> len(square_moves(3, 3)), len(square_moves(3, 4))
    (18, 36)
    """
    moves = []
    for chosen in combinations(range(rows), 2):
        for plus in permutations(range(columns), 2):
            moves.append(_exchange((rows, columns), chosen, plus, plus[::-1]))
    return np.array(moves, dtype=np.int64)


def hexagon_moves(rows: int, columns: int) -> NDArray[np.int64]:
    """Return the moves that three people can make, and no two of them, without touching a row or column total.

    Examples
    --------
    >>> len(hexagon_moves(3, 3)), len(hexagon_moves(3, 4))
    (12, 48)
    """
    moves = []
    for chosen in combinations(range(rows), 3):
        for plus in permutations(range(columns), 3):
            for turn in (1, 2):
                moves.append(_exchange((rows, columns), chosen, plus, plus[turn:] + plus[:turn]))
    return np.array(moves, dtype=np.int64)


def checked_moves(moves: Any) -> NDArray[np.int64]:
    """Return the moves with their negatives, each once, sorted and read-only; refuse what is not a space of moves.

    Examples
    --------
    >>> checked_moves([[1, -1], [0, 0]]).tolist()
    [[-1, 1], [1, -1]]
    """
    array = np.asarray(moves)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        raise ConfigError(Problem("moves", "they are not a matrix of integers", "one row a move, one column a cell"))
    both: NDArray[np.int64] = np.unique(np.concatenate([array, -array]).astype(np.int64), axis=0)
    both = both[both.any(axis=1)]
    if not len(both):
        raise ConfigError(Problem("moves", "no move changes anything", "the answers are public: they need no noise"))
    both.flags.writeable = False
    return both


def orthonormal_basis(moves: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return orthonormal columns that span the moves: noise made of them changes nothing that no move changes.

    Examples
    --------
    >>> orthonormal_basis(square_moves(3, 3)).shape
    (9, 4)
    """
    _, sizes, directions = np.linalg.svd(moves.astype(np.float64), full_matrices=False)
    rank = int((sizes > sizes[0] * 1e-9).sum())
    basis = np.ascontiguousarray(directions[:rank].T)
    basis.flags.writeable = False
    return basis


def digest_of(moves: NDArray[np.int64]) -> str:
    """Return a short name for a space of moves.

    Examples
    --------
    >>> digest_of(checked_moves([[1, -1]]))
    '2x2-...'
    """
    rows, columns = moves.shape
    return f"{rows}x{columns}-{hashlib.sha256(moves.astype('<i8').tobytes()).hexdigest()[:12]}"


def _exchange(
    shape: tuple[int, int], rows: Iterable[int], plus: tuple[int, ...], minus: tuple[int, ...]
) -> NDArray[np.int64]:
    table = np.zeros(shape, dtype=np.int64)
    for row, gains, loses in zip(rows, plus, minus, strict=True):
        table[row, gains] += 1
        table[row, loses] -= 1
    return table.reshape(-1)
