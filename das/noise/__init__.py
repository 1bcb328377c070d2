"""Exact noise: integer draws with the stated distribution, each a function of run key, stream name and position.

The mechanisms for analysis are in `das.table.projected_gaussian` and `das.table.k_norm`.
"""

from das.noise.discrete_gaussian import DiscreteGaussian
from das.noise.discrete_laplace import DiscreteLaplace
from das.noise.stream import Bits, Bundle, RunKey, StreamName, Streams

__all__ = ["Bits", "Bundle", "DiscreteGaussian", "DiscreteLaplace", "RunKey", "StreamName", "Streams"]
