"""The table sampler: every threshold against the oracle, and every road a draw can take."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.noise import DiscreteGaussian, DiscreteLaplace, RunKey
from das.noise import table as table_module
from das.noise.table import build_table, decide_exactly, table_of


class ForcedBits:
    """Bits that the test chooses: a leading pattern, then zeros."""

    def __init__(self, pattern, length):
        self.pattern, self.length = pattern, length

    def take(self, count):
        if count >= self.length:
            taken, self.pattern, self.length = self.pattern << (count - self.length), 0, 0
            return taken
        self.length -= count
        taken, self.pattern = divmod(self.pattern, 1 << self.length)
        return taken


class ForcedBundle:
    """A bundle of one stream whose 64-bit words, and the bits after them, are given."""

    count = 1

    def __init__(self, words, after=(0, 0)):
        self.words = np.array(words, dtype=np.uint64)
        self.after = after

    def lanes(self, n):
        yield 0, (self.words[:n] >> np.uint64(48)).astype(np.uint16)

    def more(self, streams, positions):
        return self.words[positions] & np.uint64(2**48 - 1)

    def more_at(self, stream, position):
        return int(self.words[position]) & (2**48 - 1)

    def bits(self, stream, position):
        return ForcedBits(*self.after)


def test_thresholds_are_the_exact_floors(noise, oracle):
    exact, table = oracle(noise), build_table(noise.weights)
    values = range(table.least - 1, -table.least + 1)
    assert [int(t) for t in table.thresholds] == [exact.scaled_floor(k, 64) for k in values]
    assert table.thresholds[0] == 0
    assert table.thresholds[-1] == 2**64 - 1


def test_table_probabilities_lie_in_their_rational_intervals(noise, oracle):
    # 64-bit words decide k for sure on thresholds[k-1] < word < thresholds[k]: at most two words short of P(X = k).
    exact, table = oracle(noise), build_table(noise.weights)
    for i, k in enumerate(range(table.least, -table.least + 1)):
        sure = int(table.thresholds[i + 1]) - int(table.thresholds[i]) - 1
        assert sure <= exact.pmf(k) * 2**64 <= sure + 2


def test_every_lane_answers_as_its_words_would(noise):
    table = build_table(noise.weights)
    first = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
    last = first | np.uint64(2**48 - 1)
    at_least = table.least - 1 + table.thresholds.searchsorted(first, side="left").astype(np.int64)
    at_most = table.least - 1 + table.thresholds.searchsorted(last, side="right").astype(np.int64)
    is_open = table.guide > -table.least
    assert np.array_equal(is_open, at_least != at_most)
    assert np.array_equal(table.guide[~is_open], at_least[~is_open])
    assert np.array_equal(table.open_cells[table.guide[is_open]], first[is_open])


def test_words_beside_a_threshold_fall_on_its_two_sides(noise):
    table = build_table(noise.weights)
    thresholds = [int(t) for t in table.thresholds[1:-1]]
    for k, threshold in zip(range(table.least, -table.least), thresholds, strict=True):
        if threshold - 1 not in thresholds and threshold + 1 not in thresholds:
            draws = table.draw(ForcedBundle([threshold - 1, threshold + 1]), 2)
            assert draws.tolist() == [[k, k + 1]]


def test_a_word_on_a_threshold_is_decided_by_the_bits_that_follow(noise, oracle):
    exact, table = oracle(noise), build_table(noise.weights)
    more = 200 if noise.variance() > 1e-9 else 800  # where 1 - F(0) < 2**-264 it takes longer to see a difference
    for k in list(range(table.least - 1, -table.least + 1))[:: max(1, -table.least // 8)]:
        word = exact.scaled_floor(k, 64)
        following = exact.scaled_floor(k, 64 + more) - (word << more)  # the next bits of F(k) itself
        if following >= 2:
            below = table.draw(ForcedBundle([word], (following - 1, more)), 1)
            assert below.tolist() == [[k]]
        above = table.draw(ForcedBundle([word], (following + 1, more)), 1)
        assert above.tolist() == [[k + 1]]


def test_the_outermost_words_reach_beyond_the_table(oracle):
    noise = DiscreteGaussian(1)
    exact, table = oracle(noise), build_table(noise.weights)
    far = table.least - 3
    inside = (exact.scaled_floor(far - 1, 264) + exact.scaled_floor(far, 264)) // 2
    assert table.draw(ForcedBundle([0], (inside, 200)), 1).tolist() == [[far]]
    mirrored = (1 << 264) - 1 - inside
    assert table.draw(ForcedBundle([2**64 - 1], (mirrored & (2**200 - 1), 200)), 1).tolist() == [[-far]]


@given(word=st.integers(0, 2**64 - 1))
def test_exact_arithmetic_agrees_with_the_table(word):
    noise = DiscreteLaplace("5/2")
    table = table_of(noise.weights)
    if word not in table.thresholds:
        assert decide_exactly(noise.weights, word, ForcedBits(0, 0)) == table.draw(ForcedBundle([word]), 1)[0, 0]


def test_exact_arithmetic_reads_on_until_it_is_sure():
    noise = DiscreteGaussian(1)
    bits = ForcedBits(1, 64 * 6)  # U = 0 for 64 + 5 * 64 + 63 bits, then a one
    assert decide_exactly(noise.weights, 0, bits) < -20
    assert bits.length == 0


def test_a_draw_outside_64_bits_is_an_error_and_not_a_wrap(monkeypatch):
    table = build_table(DiscreteGaussian(1).weights)
    monkeypatch.setattr(table_module, "decide_exactly", lambda weights, word, bits: 2**63)
    with pytest.raises(OverflowError):
        table.draw(ForcedBundle([0]), 1)


@settings(max_examples=25)
@given(
    cuts=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    n=st.integers(0, 300),
    sigma2=st.sampled_from(["1/10", "484/25", "40000"]),
)
def test_splitting_and_batching_change_no_draw(cuts, n, sigma2):
    noise = DiscreteGaussian(sigma2)
    streams = RunKey.for_testing("batching").streams(b"")
    names = [("block", str(i), "q", noise.name) for i in range(sum(cuts))]
    together = noise.draw(streams.bundle(names), n)
    assert together.shape == (sum(cuts), n)
    assert together.dtype == np.int64
    at = 0
    for cut in cuts:
        part = noise.draw(streams.bundle(names[at : at + cut]), n // 2)
        assert np.array_equal(part, together[at : at + cut, : n // 2])
        at += cut


def test_open_lanes_of_long_streams_are_placed_right(streams):
    # sigma = 200: one lane in fifty is open; more than one run a stream.
    noise = DiscreteGaussian(40_000)
    names = [("s", str(i), "q", noise.name) for i in range(3)]
    together = noise.draw(streams.bundle(names), 40_000)
    for i, name in enumerate(names):
        assert np.array_equal(noise.draw(streams.bundle([name]), 33_001)[0], together[i, :33_001])
    assert np.abs(together).max() < 1300


def test_few_and_many_open_lanes_are_decided_alike():
    # The same words alone (plain integers) and in company (arrays), thresholds among them.
    noise = DiscreteGaussian("484/25")
    table = build_table(noise.weights)
    words = [int(t) + shift for t in table.thresholds[5:60] for shift in (-1, 0, 1)]
    together = table.draw(ForcedBundle(words, (1, 64)), len(words))[0]
    alone = [table.draw(ForcedBundle([word], (1, 64)), 1)[0, 0] for word in words]
    assert together.tolist() == alone
    assert len(set(alone)) > 50


def test_tables_are_small_kept_and_read_only():
    noise = DiscreteGaussian(40_000)
    table = table_of(noise.weights)
    assert table is table_of(DiscreteGaussian("80000/2").weights)
    assert table.thresholds.nbytes + table.guide.nbytes + table.open_cells.nbytes < 400_000
    for array in (table.thresholds, table.guide, table.open_cells):
        assert not array.flags.writeable


def test_a_wide_distribution_is_drawn_without_a_table(streams):
    noise = DiscreteGaussian(10**12)
    assert table_of(noise.weights) is None
    names = [("s", str(i), "q", noise.name) for i in range(2)]
    together = noise.draw(streams.bundle(names), 20)
    assert together.shape == (2, 20)
    assert np.array_equal(noise.draw(streams.bundle(names[1:]), 7)[0], together[1, :7])
    assert 3e5 < together.std() < 2e6


def test_a_draw_too_wide_for_64_bits_is_refused(streams):
    noise = DiscreteLaplace(Fraction(2) ** 70)
    with pytest.raises(OverflowError):
        noise.draw(streams.bundle([("s", "0", "q", noise.name)]), 5)
