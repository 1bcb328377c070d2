"""Floating-point variates from keyed streams, for the mechanisms that are analysed and not released."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from das.noise.stream import Bundle

_LANES_PER_UNIFORM = 4


def uniforms(bundle: Bundle, n: int) -> NDArray[np.float64]:
    """Return n numbers strictly between 0 and 1 from each stream: 53 bits each, in the middle of their interval.

    Examples
    --------
    >>> from das.noise.stream import RunKey
    >>> bundle = RunKey.for_testing("doc").streams(b"").bundle([("", "", "", "")])
    >>> uniforms(bundle, 3).shape
    (1, 3)
    """
    lanes = np.empty(bundle.count * n * _LANES_PER_UNIFORM, dtype="<u2")
    for start, run in bundle.lanes(n * _LANES_PER_UNIFORM):
        lanes[start : start + run.size] = run
    words = lanes.view("<u8") >> np.uint64(11)
    return np.asarray((words.astype(np.float64) + 0.5) * 2.0**-53).reshape(bundle.count, n)


def normals(bundle: Bundle, n: int) -> NDArray[np.float64]:
    """Return n standard normal numbers from each stream, by inversion.

    Examples
    --------
    >>> from das.noise.stream import RunKey
    >>> bundle = RunKey.for_testing("doc").streams(b"").bundle([("", "", "", "")])
    >>> bool(abs(normals(bundle, 10_000).mean()) < 0.05)
    True
    """
    return np.asarray(ndtri(uniforms(bundle, n)))
