"""The exponential mechanism, sampled exactly: P(i) proportional to exp(epsilon score_i / (2 sensitivity)).

McSherry and Talwar (2007). Scores are exact rationals, and so is every coin; see ``exponential.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from das.errors import Problem, UsageError
from das.noise.bernoulli import bernoulli_exp, uniform_below
from das.noise.stream import Bits

__all__ = ["choose"]


def choose(
    bits: Bits, scores: Sequence[int] | Sequence[Fraction], *, epsilon: Fraction, sensitivity: int | Fraction
) -> int:
    """Return the position of one candidate.

    A candidate is proposed uniformly and accepted with probability exp(-epsilon (best - score) / (2 sensitivity)), by
    coins in rational arithmetic; the best is always accepted, so at most as many proposals are expected as there are
    candidates.

    Parameters
    ----------
    bits : Bits
        A keyed source that serves this choice alone.
    scores : sequence of int or Fraction
        Larger is better; one neighbour moves each by at most ``sensitivity``.
    epsilon : Fraction
        The mechanism is epsilon-DP, and epsilon^2/8-zCDP.
    sensitivity : int or Fraction
        In the units of the scores.

    Examples
    --------
    >>> from das.noise.stream import RunKey
    >>> bits = RunKey.for_testing("doc").streams(b"").bits(("", "", "select", ""))
    >>> choose(bits, [0, 10**6, 3], epsilon=Fraction(1), sensitivity=1)
    1
    """
    if not scores or sensitivity <= 0 or epsilon < 0:
        raise UsageError(Problem("selection", "needs candidates, a positive sensitivity and epsilon of at least 0"))
    best = max(scores)
    rate = Fraction(epsilon) / (2 * Fraction(sensitivity))
    while True:
        candidate = uniform_below(bits, len(scores)) if len(scores) > 1 else 0
        if bernoulli_exp(bits, rate * (best - scores[candidate])):
            return candidate
