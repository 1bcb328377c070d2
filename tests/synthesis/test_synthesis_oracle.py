"""The graphical fit against an independent implementation, mbi, where that is installed; brute force is elsewhere."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from das.noise import DiscreteGaussian
from das.synthesis.curator import Measurement
from das.synthesis.domain import Domain
from das.synthesis.graphical.fit import FitOptions, fit

DOMAIN = Domain(("a", "b", "c", "d"), (2, 3, 4, 3))


@pytest.mark.slow
@pytest.mark.parametrize("sets", [(("a", "b"), ("b", "c"), ("c", "d")), tuple(combinations("abcd", 2))])
def test_all_marginals_agree_with_mbi(sets: tuple[tuple[str, ...], ...]) -> None:
    reason = "mbi is not installed (it brings jax): pip install 'mbi>=2,<3'"
    mbi = pytest.importorskip("mbi", reason=reason)
    estimation = pytest.importorskip("mbi.estimation", reason=reason)
    pytest.importorskip("jax", reason=reason).config.update("jax_enable_x64", True)
    rng = np.random.default_rng(8)
    total, noise = 5_000, DiscreteGaussian(400)
    table = rng.multinomial(total, rng.dirichlet(np.full(DOMAIN.size, 2.0))).reshape(DOMAIN.shape)
    measured = []
    for each in sets:
        truth = table.sum(axis=tuple(axis for axis, name in enumerate(DOMAIN.names) if name not in each))
        measured.append(Measurement(each, truth + rng.integers(-20, 21, truth.shape), noise))
    ours = fit(measured, DOMAIN, total=total, options=FitOptions(tau=Fraction(1, 10_000), tolerance=1e-3))
    theirs = estimation.MirrorDescent().estimate(
        mbi.Domain(DOMAIN.names, DOMAIN.shape),
        [mbi.LinearMeasurement(m.answers.reshape(-1).astype(float), m.attributes, 20.0) for m in measured],
        known_total=total,
    )
    for size in (1, 2, 3):
        for each in combinations(DOMAIN.names, size):
            found = np.asarray(theirs.project(each).datavector()).reshape(DOMAIN.shape_of(each))
            assert np.abs(ours.marginal(each) - found).sum() / total < 0.002
