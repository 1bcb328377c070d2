"""The noise benchmark: its rows, its check, and what it says without the peer."""

import sys
from fractions import Fraction

import pytest

from das.bench.noise import p_value, rows
from das.errors import UsageError
from das.noise import DiscreteGaussian


def test_rows_have_the_promised_fields():
    pytest.importorskip("opendp")
    found = rows(repetitions=1, batches=(63,), sigmas=(Fraction(1),))
    assert [row["family"] for row in found] == ["gaussian", "laplace"]
    for row in found:
        assert {"name", "ours", "peer", "ratio", "unit", "checked", "batch", "sigma", "family"} <= row.keys()
        assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
        assert row["checked"].startswith("same distribution")
        assert row["batch"] == row["peer_batch"] == 63


def test_the_check_can_fail(streams):
    noise = DiscreteGaussian(4)
    draws = noise.draw(streams.bundle([("bench", "", "", noise.name)]), 200_000)
    assert p_value(draws, noise) > 1e-6
    assert p_value(draws, DiscreteGaussian("21/5")) < 1e-12


def test_without_the_peer_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(UsageError, match=r"das\[bench\]"):
        rows(repetitions=1, batches=(8,))
