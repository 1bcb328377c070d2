"""Add noise to answers of true counts; only this module and the congenial sampler combine the two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from das.noise.stream import Streams
from das.noise.two_sided import TwoSidedNoise
from das.schema.counts import TrueCounts
from das.schema.query import Query

__all__ = ["Measured", "noisy_answers"]


class Measured(Protocol):
    """A query of one level and the noise that it is measured with; :class:`das.plan.plan.Measurement` is one."""

    @property
    def level(self) -> str:
        """The geolevel."""

    @property
    def query(self) -> Query:
        """What is counted."""

    @property
    def mechanism(self) -> TwoSidedNoise:
        """The noise of each answer."""


def noisy_answers(
    measurements: Sequence[Measured], geocodes: NDArray[np.str_], truth: TrueCounts, streams: Streams
) -> NDArray[np.int64]:
    """Answer each query with its noise: geounits x numbers, queries side by side in the order given.

    Parameters
    ----------
    measurements : sequence
        Queries of one level.
    geocodes : ndarray of str
        The geounits to measure, the empty ones too.
    truth : TrueCounts
        Their true counts; units are positions in ``geocodes``. They are sparse and stay so: only cells with somebody in
        them are added to the noise.
    streams : Streams
        The noise of a number is a function of run key, plan, level, geocode, query and mechanism, so whoever measures
        twice writes the same number twice.

    Examples
    --------
    >>> from das.noise import DiscreteGaussian, RunKey
    >>> from das.plan.plan import Measurement
    >>> from das.schema.query import parse_query
    >>> from das.schema.schema import Attribute, Schema
    >>> sex = parse_query(Schema((Attribute("sex", ("f", "m")),)), "sex")
    >>> tiny = Measurement(level="state", query=sex, share=1, cost=1, mechanism=DiscreteGaussian("1/1000"))
    >>> truth = TrueCounts(np.array([1]), np.array([0]), np.array([7]))
    >>> noisy_answers([tiny], np.array(["01", "02"]), truth, RunKey.for_testing("k").streams(b"plan")).tolist()
    [[0, 0], [7, 0]]
    """
    values = np.empty((len(geocodes), sum(m.query.size for m in measurements)), dtype=np.int64)
    first = 0
    for measurement in measurements:
        query, noise = measurement.query, measurement.mechanism
        names = [(measurement.level, geocode, query.name, noise.name) for geocode in geocodes.tolist()]
        values[:, first : first + query.size] = noise.draw(streams.bundle(names), query.size)
        places = truth.unit * values.shape[1] + first + query.group_of(truth.cell)
        np.add.at(values.reshape(-1), places, truth.count)
        first += query.size
    return values
