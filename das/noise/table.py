"""The table sampler: exact draws at the speed of the keystream; ``table.md`` has the proof.

A draw is the inverse of the distribution function F at a uniform real U, whose bits are read only as far as needed:
16 of them answer almost always, 64 almost surely, and exact arithmetic answers the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from das.errors import Problem, UsageError
from das.noise.interval_arithmetic import Weights, enclose_tails
from das.noise.stream import Bits, Bundle

WORD_BITS = 64
GUIDE_BITS = 16
MAX_THRESHOLDS = 2**18  # 2 MB; beyond it a table costs more to build than it saves
_FEW = 8
_PRECISIONS = tuple(192 << n for n in range(6))


@dataclass(frozen=True, slots=True)
class Table:
    """Thresholds of one distribution, and the guide that answers from 16 bits.

    Parameters
    ----------
    weights : Weights
        The distribution, for the words that the thresholds cannot decide.
    least : int
        The smallest value that 64 bits can decide on; by symmetry -least is the largest.
    thresholds : array of uint64
        floor(2**64 F(k)) for k = least - 1, ..., -least. The first is 0 and the last 2**64 - 1.
    guide : array of 65,536 integers
        For each value of the first 16 bits the draw, or a number above -least that says "read on".
    open_cells : array of uint64
        Under that number, the 16 bits it stands for, followed by 48 zeros.
    """

    weights: Weights
    least: int
    thresholds: NDArray[np.uint64]
    guide: NDArray[np.signedinteger]
    open_cells: NDArray[np.uint64]

    def __post_init__(self) -> None:
        for array in (self.thresholds, self.guide, self.open_cells):
            array.flags.writeable = False

    def draw(self, bundle: Bundle, n: int) -> NDArray[np.int64]:
        """Return n exact draws from each stream of the bundle, as an array (streams, n)."""
        draws = np.empty(bundle.count * n, dtype=np.int64)
        largest = -self.least
        open_places = []
        for start, lanes in bundle.lanes(n):
            answers = self.guide.take(lanes.astype(np.intp))
            draws[start : start + len(answers)] = answers
            (unsure,) = (answers > largest).nonzero()
            if unsure.size:
                open_places.append(unsure + start if start else unsure)
        if open_places:
            self._read_on(bundle, n, draws, np.concatenate(open_places))
        return draws.reshape(bundle.count, n)

    def _read_on(self, bundle: Bundle, n: int, draws: NDArray[np.int64], places: NDArray[np.intp]) -> None:
        """Decide, in place, the draws whose first 16 bits did not suffice: by 48 more, or by as many as it takes."""
        if len(places) <= _FEW:  # a small call meets one or two: plain integers are then faster than arrays
            for place in places.tolist():
                stream, position = divmod(place, n)
                draws[place] = self._read_on_at(bundle, stream, position, self.open_cells.item(draws[place]))
            return
        streams, positions = np.divmod(places, n)
        cells = self.open_cells.take(draws.take(places))
        words = cells | bundle.more(streams, positions)
        at = self.thresholds[1:].searchsorted(words, side="right")  # thresholds[at] <= word < thresholds[at + 1]
        draws[places] = at + self.least
        for i in (self.thresholds.take(at) == words).nonzero()[0].tolist():
            draws[places[i]] = self._read_on_at(bundle, int(streams[i]), int(positions[i]), int(cells[i]))

    def _read_on_at(self, bundle: Bundle, stream: int, position: int, cell: int) -> int:
        word = cell | bundle.more_at(stream, position)
        at = bisect_right(self.thresholds.data, word, lo=1) - 1  # thresholds[at] <= word < thresholds[at + 1]
        if self.thresholds.data[at] < word:
            return at + self.least
        return as_int64(decide_exactly(self.weights, word, bundle.bits(stream, position)))


@lru_cache(maxsize=256)
def table_of(weights: Weights) -> Table | None:
    """Return the table of a distribution, kept for the next call; None where it would be too large.

    Examples
    --------
    >>> from fractions import Fraction
    >>> table_of(Weights(Fraction(1, 10**20), Fraction(0))) is None
    True
    """
    return build_table(weights) if 2 * weights.reach(WORD_BITS) <= MAX_THRESHOLDS else None


def build_table(weights: Weights) -> Table:
    """Return the table of a distribution, its thresholds proved exact.

    Examples
    --------
    >>> from fractions import Fraction
    >>> table = build_table(Weights(Fraction(1, 2), Fraction(0)))   # the discrete Gaussian with sigma2 = 1
    >>> table.least, table.thresholds.size, int((table.guide > 9).sum())
    (-9, 20, 10)
    """
    lower_half = _tail_thresholds(weights)
    least = -(len(lower_half) - 1)
    # P(X <= k) = 1 - P(X >= k + 1), and floor(2**64 - t) = 2**64 - 1 - floor(t) because no t here is an integer.
    upper_half = [(1 << WORD_BITS) - 1 - t for t in lower_half]
    thresholds = np.array([*reversed(lower_half), *upper_half], dtype=np.uint64)

    cells = (thresholds >> np.uint64(WORD_BITS - GUIDE_BITS)).astype(np.intp)
    in_cell = np.bincount(cells, minlength=1 << GUIDE_BITS)
    guide = np.cumsum(in_cell) + (least - 1)
    (holding,) = in_cell.nonzero()  # cells with a threshold inside: 16 bits do not decide
    guide[holding] = 1 - least + np.arange(len(holding))
    open_cells = np.zeros(1 - least + len(holding), dtype=np.uint64)
    open_cells[1 - least :] = holding.astype(np.uint64) << np.uint64(WORD_BITS - GUIDE_BITS)
    kind = next(kind for kind in (np.int8, np.int16, np.int32) if guide.max() <= np.iinfo(kind).max)
    return Table(
        weights=weights,
        least=least,
        thresholds=thresholds,
        guide=guide.astype(kind),
        open_cells=open_cells,
    )


def _tail_thresholds(weights: Weights) -> list[int]:
    """Return floor(2**64 P(X >= k)) for k = 1, 2, ... up to the first zero, each proved.

    A floor is proved when both ends of the enclosure have it and the lower end is not itself that integer (no
    probability is zero). If that fails the precision is doubled; should it fail at thousands of bits, that is an
    error and not a guess.
    """
    for bits in _PRECISIONS:
        spare = bits - WORD_BITS
        floors = []
        for lower, upper in enclose_tails(weights, bits):
            if max(lower - 1, 0) >> spare != upper >> spare:
                break
            floors.append(upper >> spare)
            if floors[-1] == 0:
                return floors
    raise UsageError(
        Problem("noise table", f"{_PRECISIONS[-1]} bits cannot tell a threshold from an integer", "change the scale")
    )


def decide_exactly(weights: Weights, word: int, bits: Bits) -> int:
    """Return the draw of U = 0.word... in binary, reading further bits of U until the draw is certain.

    U < P(X <= -k) means X <= -k, and 1 - U <= P(X >= k) means X >= k: the draw is the number of k >= 1 for which the
    second is true minus the number for which the first is. Both are asked of enclosures that shrink as fast as
    the interval known to contain U.

    Examples
    --------
    >>> from das.noise.stream import RunKey
    >>> from fractions import Fraction
    >>> gaussian = Weights(Fraction(1, 2), Fraction(0))
    >>> decide_exactly(gaussian, 2**63, RunKey.for_testing("doc").streams(b"").bits(("", "", "", "")))
    0
    """
    word_bits = WORD_BITS
    while True:
        word, word_bits = word << WORD_BITS | bits.take(WORD_BITS), word_bits + WORD_BITS
        below = _count_above(weights, word, word_bits)
        above = _count_above(weights, (1 << word_bits) - 1 - word, word_bits)
        if below is not None and above is not None:
            return above - below


def _count_above(weights: Weights, word: int, word_bits: int) -> int | None:
    """Return how many k >= 1 have P(X >= k) above every point of [word, word + 1] / 2**word_bits; None if uncertain."""
    spare = WORD_BITS
    start, end = word << spare, (word + 1) << spare
    for count, (lower, upper) in enumerate(enclose_tails(weights, word_bits + spare)):
        if upper <= start:
            return count
        if lower < end:
            return None
    return None


def as_int64(value: int) -> int:
    """Return the value, or refuse what would wrap around.

    Examples
    --------
    >>> as_int64(-7)
    -7
    >>> as_int64(2**63)
    Traceback (most recent call last):
    OverflowError: a draw does not fit 64 bits: the noise parameter is far too large for counts
    """
    if not -(2**63) <= value < 2**63:
        raise OverflowError("a draw does not fit 64 bits: the noise parameter is far too large for counts")
    return value
