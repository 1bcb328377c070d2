"""The benchmark of accuracy: its rows, its peers and its populations, on states of a few blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.bench import measure
from das.bench.accuracy import BLUEDOWN, Real, _gains_on, _peer_rows, _prior_rows, gain_rows
from das.bench.closed_form import nearest_table
from das.bench.emptiness import SIZES, emptiness_rows, off_spine_rows
from das.bench.enclaves import plant, plant_in_counts
from das.bench.real_geography import read_blocks
from das.demo import generate
from das.errors import InputError, UsageError
from das.estimation.prior.totals import share_out


@pytest.mark.slow
def test_rows_say_what_is_gained_from_the_same_measurements() -> None:
    found = gain_rows(120, (1, 2), 1)
    assert [(row["level"], row["query"]) for row in found] == list(BLUEDOWN)
    for row in found:
        assert row["gain_percent"] == pytest.approx(100 * (1 - row["ours"] / row["peer"]))
        assert row["ratio"] == (pytest.approx(row["peer"] / row["ours"]) if row["ours"] else None)
        assert row["gain_percent_se"] >= 0
        assert row["prior"] == "none"
    detailed = next(row for row in found if (row["level"], row["query"]) == ("tract", "detailed"))
    assert detailed["gain_percent"] > 10  # most of what there is to tell apart


@pytest.mark.slow
def test_peers_and_priors_have_rows() -> None:
    data = Real(some_blocks())
    peers = {(row["level"], row["query"]): row for row in _peer_rows(data, 1)}
    assert len(peers) == 6
    # One level alone and one detailed query a node: nearly the same problem, ours with a penalty on totals.
    assert 0.6 < peers["tract", "detailed"]["one_level"] / peers["tract", "detailed"]["peer"] < 1.4
    assert peers["tract", "detailed"]["ours"] < peers["tract", "detailed"]["peer"]
    rows = _prior_rows(data, 1)
    assert {("block_group", "2"), ("block", "50")} <= {
        (row["level"], row["size"]) for row in rows if row["group"] == "enclave"
    }
    for row in rows:
        assert row["change"] == pytest.approx(row["ours"] - row["peer"])


def some_blocks() -> pd.DataFrame:
    """Block groups of ten blocks of three groups, a third of the blocks empty."""
    rng = np.random.default_rng(2)
    codes = [f"44{1 + i // 200:03d}{1 + i // 40:06d}{1 + i // 10 % 4}{i % 10:03d}" for i in range(400)]
    sizes = np.where(rng.random(400) < 0.3, 0, rng.poisson(40, 400))
    people = np.stack([rng.binomial(sizes, share) for share in (0.8, 0.15, 0.02)], axis=1)
    columns = {f"pop_{name}": people[:, i] for i, name in enumerate(("white", "black", "nhpi"))}
    columns |= {f"vap_{name}": people[:, i] // 2 for i, name in enumerate(("white", "black", "nhpi"))}
    return pd.DataFrame({"GEOID": codes, **columns})


@pytest.mark.slow
def test_real_geography_is_read_and_measured(tmp_path: Path) -> None:
    path = tmp_path / "blocks.csv"
    some_blocks().to_csv(path, index=False)
    found = _gains_on(Real(read_blocks(path)), ("total", "race"), 1)
    assert [(row["level"], row["query"]) for row in found] == [
        (level, query) for level in ("tract", "block_group") for query in ("total", "race")
    ]
    for row in found:
        assert row["gain_percent"] == pytest.approx(100 * (1 - row["ours"] / row["peer"]))


def test_a_table_without_blocks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "blocks.csv"
    some_blocks().drop(columns=["vap_black", "vap_nhpi"]).to_csv(path, index=False)
    with pytest.raises(InputError, match="no two groups"):
        measure("accuracy", counts=path)
    for options in ({"counts": path}, {"runs": 3}):
        with pytest.raises(UsageError, match="means nothing to `das bench noise`"):
            measure("noise", **options)


@given(st.lists(st.tuples(st.floats(-20, 60), st.floats(-20, 60)), min_size=1, max_size=8), st.integers(0, 90))
def test_the_closed_form_is_the_nearest_nonnegative_table(noisy: list[tuple[float, float]], total: int) -> None:
    values, totals = np.array(noisy), np.array([total, 0])
    found = nearest_table(values, totals, np.random.default_rng(0))
    assert found.sum(axis=0).tolist() == [total, 0]
    assert (found >= 0).all()
    exact = share_out(values[:, 0], np.ones(len(values)), float(total))  # another algorithm for the same projection
    assert (np.abs(found[:, 0] - exact) < 1 + 1e-6).all()


def test_enclaves_are_planted_once_in_a_block_group() -> None:
    before = generate(blocks=600, people=20_000)
    after, enclaves = plant(before)
    assert after.people - before.people == sum(enclave.size for enclave in enclaves)
    assert len({enclave.geocode[:12] for enclave in enclaves}) == len(enclaves) > 5
    assert {enclave.size for enclave in enclaves} == {2, 5, 10, 20, 50}
    counts, planted = plant_in_counts(some_blocks(), ["white", "black", "nhpi"])
    grown = (counts.set_index("GEOID") - some_blocks().set_index("GEOID")).sum(axis=1)
    assert grown[grown > 0].to_dict() == {enclave.geocode: 2 * enclave.size for enclave in planted}  # pop and vap


def test_zeroing_likely_empty_places_moves_their_bias() -> None:
    found = emptiness_rows(some_blocks(), "test", 3)
    ways = {row["prior"]: row for row in found if row["name"].endswith("4.35")}
    assert set(ways) == {"nearest", "posterior mean", "likely zeros", "emptiness measured", "mixed objective"}
    assert set(ways["nearest"]["bias"]) <= set(SIZES)
    assert ways["nearest"]["bias"]["0"] > 0.5  # what it is about
    assert ways["likely zeros"]["bias"]["0"] < ways["nearest"]["bias"]["0"]
    assert ways["nearest"]["ratio"] == 1.0
    assert ways["emptiness measured"]["ours"] > ways["nearest"]["ours"]  # half of the budget tells next to nothing


def test_linear_estimates_of_areas_have_no_bias() -> None:
    blocks = pd.concat([some_blocks().assign(GEOID=lambda b, i=i: f"4{i}" + b["GEOID"].str[2:]) for i in range(4)])
    small = off_spine_rows(blocks, "test", 3)[1]
    assert small["name"].endswith("fewer than ten people of a tract")
    assert abs(small["bias"]) < 5 * small["bias_se"]
    assert small["peer_bias"] > 10 * small["peer_bias_se"]  # nothing takes back what empty blocks gained


def test_the_shape_of_a_state_can_be_asked_for() -> None:
    few, many = (generate(blocks=600, people=100, blocks_per_group=size, tracts_per_county=2) for size in (60, 20))
    groups = [len({code[:12] for code in state.geocodes.tolist()}) for state in (few, many)]
    assert groups == [10, 30]
    assert len({code[:5] for code in many.geocodes.tolist()}) == 5
