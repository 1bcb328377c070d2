"""Exact noise against OpenDP: draws per second, in one process, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import count
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from das.errors import Problem, UsageError
from das.noise import DiscreteGaussian, DiscreteLaplace, RunKey

BATCHES = (63, 2_016, 20_000, 1_000_000)
SIGMAS = (Fraction(1), Fraction(22, 5), Fraction(20), Fraction(200))
PEER_BATCH = 20_000  # the peer's longest vector: its time is linear in the draws, and a million would take minutes
_CHECKED_DRAWS = 1_000_000

Noise = DiscreteGaussian | DiscreteLaplace
Draw = Callable[[int], NDArray[np.int64]]


def rows(
    *, repetitions: int = 5, batches: Sequence[int] = BATCHES, sigmas: Sequence[Fraction] = SIGMAS
) -> list[dict[str, Any]]:
    """Return one row for each family, sigma and batch: what `das bench noise --json` prints.

    Ours is the call of the pipeline, names hashed and all; every call draws from a stream of its own. OpenDP's is its
    vector measurement on zeros. Both are asked in turns, and medians are compared. For the Laplace family `sigma` is
    the scale. Without OpenDP (the extra `bench`) this is a `UsageError`.
    """
    peers = _peers()
    found = []
    for family, make_peer in peers.items():
        for sigma in sigmas:
            noise: Noise = DiscreteGaussian(sigma**2) if family == "gaussian" else DiscreteLaplace(sigma)
            ours, peer = _our_draw(noise), make_peer(float(sigma))
            checked = _check(noise, ours, peer)
            for batch in batches:
                found.append(_row(family, sigma, noise, ours, peer, batch, repetitions) | {"checked": checked})
    return found


def _row(
    family: str, sigma: Fraction, noise: Noise, ours: Draw, peer: Draw, batch: int, repetitions: int
) -> dict[str, Any]:
    peer_batch = min(batch, PEER_BATCH)
    our_rates, peer_rates = [], []
    for _ in range(repetitions):
        our_rates.append(_rate(ours, batch))
        peer_rates.append(_rate(peer, peer_batch))
    return {
        "name": f"noise {family} sigma {float(sigma):g} batch {batch}",
        "ours": median(our_rates),
        "peer": median(peer_rates),
        "ratio": median(our_rates) / median(peer_rates),
        "unit": "draws per CPU second",
        "batch": batch,
        "sigma": float(sigma),
        "family": family,
        "mechanism": noise.name,
        "peer_batch": peer_batch,
        "peer_scaled": "per draw" if peer_batch < batch else "no",
        "repetitions": repetitions,
    }


def _rate(draw: Draw, batch: int, least_seconds: float = 0.1) -> float:
    """Return draws per second of CPU time, which other work on the machine disturbs less than wall time."""
    calls, seconds, start = 0, 0.0, process_time()
    while seconds < least_seconds:
        draw(batch)
        calls += 1
        seconds = process_time() - start
    return batch * calls / seconds


def _our_draw(noise: Noise) -> Draw:
    streams = RunKey.generate().streams(b"das bench noise")
    geocodes = count()

    def draw(n: int) -> NDArray[np.int64]:
        return noise.draw(streams.bundle([("bench", str(next(geocodes)), "detailed", noise.name)]), n)

    draw(1)  # build the table
    return draw


def _peers() -> dict[str, Callable[[float], Draw]]:
    try:
        import opendp.prelude as dp
    except ImportError:
        remedy = "install the extra: pip install 'das[bench]'"
        raise UsageError(Problem("das bench noise", "OpenDP, the peer, is not installed", remedy)) from None
    dp.enable_features("contrib")
    vectors = dp.vector_domain(dp.atom_domain(T=int))

    def as_draw(measurement: Any) -> Draw:
        return lambda n: np.asarray(measurement([0] * n))

    return {
        "gaussian": lambda scale: as_draw(dp.m.make_gaussian(vectors, dp.l2_distance(T=float), scale=scale)),
        "laplace": lambda scale: as_draw(dp.m.make_laplace(vectors, dp.l1_distance(T=int), scale=scale)),
    }


def _check(noise: Noise, ours: Draw, peer: Draw) -> str:
    """Say how both samplers fared against the exact probabilities."""
    our_p, peer_p = p_value(ours(_CHECKED_DRAWS), noise), p_value(peer(PEER_BATCH), noise)
    verdict = "same distribution" if min(our_p, peer_p) > 1e-6 else "NOT the same distribution"
    return (
        f"{verdict}: chi-square against the exact probabilities, "
        f"ours p = {our_p:.2g} ({_CHECKED_DRAWS} draws), OpenDP p = {peer_p:.2g} ({PEER_BATCH} draws)"
    )


def p_value(draws: NDArray[np.int64], noise: Noise) -> float:
    """Return the chi-square p-value of integer draws; values expected less than ten times are pooled.

    Examples
    --------
    >>> noise = DiscreteLaplace(2)
    >>> streams = RunKey.for_testing("doc").streams(b"")
    >>> draws = noise.draw(streams.bundle([("", "", "", noise.name)]), 100_000)
    >>> p_value(draws, noise) > 0.001, p_value(draws, DiscreteLaplace("21/10")) < 1e-9
    (True, True)
    """
    draws = draws.reshape(-1)
    reach = int(20 * noise.variance() ** 0.5) + 1
    expected = draws.size * np.exp(noise.log_pmf(np.arange(-reach, reach + 1)))
    observed = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
    often = expected >= 10
    expected = np.append(expected[often], draws.size - expected[often].sum())
    observed = np.append(observed[often], draws.size - observed[often].sum())
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(chdtrc(len(expected) - 1, statistic))
