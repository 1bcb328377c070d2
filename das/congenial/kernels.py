"""Compile every kernel of the congenial sampler, unless its machine code is there: for an installation that waits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from das.congenial.convolution import roots, split, sums
from das.congenial.extended_convolution import has_fallen
from das.congenial.extended_messages import roots_extended, split_totals, sums_extended
from das.congenial.extended_range import leaves_extended
from das.congenial.function_store import Groups
from das.congenial.messages import leaves
from das.noise.discrete_gaussian import DiscreteGaussian
from das.noise.interval_arithmetic import Weights

__all__ = ["compile_kernels"]


def compile_kernels() -> None:
    """Add, draw and split a total of three small counts, two of them alike, in doubles and in extended range."""
    three, total, words = Groups.of([[(0, 2), (1, 1)]]), np.array([2]), np.zeros((3, 4), dtype=np.uint64)
    stored, _ = leaves([0, 1], DiscreteGaussian(1), lower=0, upper=10**6, reach=30)
    roots(sums(stored, three, 0, 40), words[:1, :2])
    split(stored, three, total, words)
    exact = leaves_extended([0, 1], Weights(Fraction(0), Fraction(1)), [0, 0], [9, 9], [0, 0], [9, 9])
    roots_extended(sums_extended(exact, three, np.array([0]), np.array([27])), words[:1])
    split_totals(exact, three, total, words)
    has_fallen(-1.0, 0.0, 1)  # where a root's window is cut
