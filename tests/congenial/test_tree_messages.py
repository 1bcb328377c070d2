"""Messages against exact rational convolutions, their proved bounds against much wider windows, splits bit by bit."""

from __future__ import annotations

import hashlib
import hmac
import pickle
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from das.compiled import compiled
from das.congenial import backward_sampling, convolution_kernels, windows
from das.congenial.messages import Groups, Messages, WindowTooSmall, concat, leaves, roots, split, sums, times
from das.congenial.noise_weights import FACTOR_ERROR, factor_table
from das.errors import ConfigError
from das.noise import DiscreteGaussian, DiscreteLaplace, RunKey

# Parts of kernels, as machine code: Python would calculate with its own integers.
choose, convolve, plan = map(compiled, (backward_sampling.choose, convolution_kernels.convolve, windows.plan))
NOISES = [DiscreteGaussian(4), DiscreteGaussian("1/3"), DiscreteLaplace("3/2"), DiscreteLaplace("1/2")]


def words_of(text, n):
    bundle = RunKey.for_testing(text).streams(b"").bundle([("tree", "", "q", "m")])
    both = [bundle.words(np.zeros(n, dtype=np.int64), np.arange(n) + start) for start in (0, 2**31)]
    return np.concatenate(both, axis=1)


def values(messages, i):
    """The stored function as exact rationals, without its scale; and what may be missing of it."""
    start, stop = messages.offset[i], messages.offset[i + 1]
    tilts = [Fraction(2) ** int(messages.tilt[i] * k) for k in range(stop - start)]
    stored = [Fraction(float(w)) * t for w, t in zip(messages.weight[start:stop], tilts, strict=True)]
    most = np.minimum(messages.missing[start:stop], 1e300)  # infinite where nothing at all is known
    missing = [Fraction(float(w)) * t for w, t in zip(most, tilts, strict=True)]
    return int(messages.first[i]), stored, missing


def convolved(parts):
    """(first, values) of the sum of independent parts, exactly."""
    first, total = 0, [Fraction(1)]
    for start, part in parts:
        first += start
        new = [Fraction(0)] * (len(total) + len(part) - 1)
        for i, a in enumerate(total):
            if a:
                for j, b in enumerate(part):
                    new[i + j] += a * b
        total = new
    return first, total


@pytest.mark.parametrize(
    "noise", [*NOISES, DiscreteGaussian("1/1000"), DiscreteGaussian("484/25")], ids=lambda n: n.name
)
def test_factors_are_right_to_their_last_bits(noise):
    table = factor_table(noise.weights)
    with localcontext() as context:
        context.prec = 60
        for k in range(0, len(table), max(1, len(table) // 40)):
            exponent = noise.weights.exponent(k)
            true = (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
            assert abs(Decimal(float(table[k])) / true - 1) <= Decimal(FACTOR_ERROR)
    beyond = noise.weights.exponent(len(table))
    assert beyond > 693  # 2^-1000


def test_noise_that_no_table_holds_is_refused():
    with pytest.raises(ConfigError, match="spreads"):
        factor_table(DiscreteLaplace(10_000).weights)


def test_leaves_share_and_are_the_noise_itself():
    noise = DiscreteLaplace("3/2")
    store, ids = leaves([4, 0, 4, 4], noise, lower=0, upper=[99, 99, 99, 5], reach=12)
    assert len(store) == 3
    assert ids[0] == ids[2] != ids[3]
    first, stored, _ = values(store, int(ids[0]))
    scale = np.exp(store.log_scale[ids[0]])
    for k, weight in enumerate(stored):
        assert scale * float(weight) == pytest.approx(noise.pmf(first + k - 4), rel=1e-14)
    assert np.isinf(store.below[:, 0]).all()  # a count ends at zero
    assert np.isfinite(store.above[ids[0], 0])
    assert np.isinf(store.above[ids[3], 0])  # and at its upper bound


@settings(max_examples=40)
@given(
    noise=st.sampled_from(NOISES),
    entries=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=4),
    reach=st.integers(3, 9),
    half=st.integers(1, 12),
    away=st.integers(-4, 8),
)
def test_sums_are_convolutions_up_to_their_own_bounds(noise, entries, reach, half, away):
    """Stored values are the sums of stored members, up to rounding and to what narrow partial windows leave out."""
    store, ids = leaves([x for x, _ in entries], noise, 0, 10**6, reach)
    groups = Groups.of([[(int(i), m) for i, (_, m) in zip(ids, entries, strict=True)]])
    centre = sum(x * m for x, m in entries) + away
    reachable = sum(m * (x + reach) for x, m in entries)
    assume(centre + half >= 0 and centre - half <= reachable)
    summed = sums(store, groups, centre - half, centre + half)
    members = [i for i, (_, m) in zip(ids.tolist(), entries, strict=True) for _ in range(m)]
    first, exact = convolved(values(store, i)[:2] for i in members)
    start, stored, missing = values(summed, 0)
    scale = np.exp(summed.log_scale[0] - sum(m * store.log_scale[i] for i, (_, m) in zip(ids, entries, strict=True)))
    power = Fraction(2) ** round(np.log2(scale))
    assert float(power) == pytest.approx(scale, rel=1e-9)
    error = Fraction(float(summed.error[0] - sum(m * store.error[i] for i, (_, m) in zip(ids, entries, strict=True))))
    for k, weight in enumerate(stored):
        true = exact[start + k - first]
        assert weight * power <= true * (1 + error)
        assert true * (1 - error) <= (weight + missing[k]) * power


@settings(max_examples=40)
@given(
    noise=st.sampled_from([DiscreteGaussian(4), DiscreteGaussian("1/3"), DiscreteLaplace(1)]),
    entries=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), min_size=2, max_size=3),
    reach=st.integers(2, 8),
    half=st.integers(2, 10),
    shift=st.integers(-3, 6),
)
def test_what_is_missing_and_what_lies_outside_is_bounded(noise, entries, reach, half, shift):
    """Windows far too small, against windows that hold everything: every bound must still be one."""
    counts = [x for x, _ in entries]
    narrow, ids = leaves(counts, noise, 0, 10**6, reach)
    wide, wide_ids = leaves(counts, noise, 0, 10**6, 70)
    centre = sum(x * m for x, m in entries)

    def up(store, ids, first, last):
        groups = Groups.of([[(int(i), m) for i, (_, m) in zip(ids, entries, strict=True)]])
        return times(sums(store, groups, first, last), max(0, centre + shift), noise, 0, 10**6)

    small = up(narrow, ids, centre - half, centre + half)
    large = up(wide, wide_ids, 0, centre + 70)
    assert large.lost_upper()[0] < 2.0**-60
    first, truth, _ = values(large, 0)
    unit = float(large.log_scale[0] - small.log_scale[0])
    start, stored, missing = values(small, 0)

    def log_of(x):
        return float(np.log(float(x))) if x > Fraction(1, 2**1000) else -np.inf

    for k, weight in enumerate(stored):
        true = log_of(truth[start + k - first]) + unit
        assert true >= log_of(weight) - 1e-9
        assert true <= log_of(weight + missing[k]) + 1e-9
    tilt = small.tilt[0] * np.log(2)
    for k in range(len(truth)):
        at, true = first + k, log_of(truth[k]) + unit
        for steps, (value, ratio) in ((at - start - len(stored), small.above[0]), (start - 1 - at, small.below[0])):
            if steps >= 0 and value < np.inf:
                assert true <= value + (steps * ratio if steps else 0.0) + tilt * (at - start) + 1e-9
    inside = float(np.exp(small.log_total()[0] - large.log_total()[0]))
    assert 1 - inside <= small.lost_upper()[0] + 1e-9
    if small.lost_upper()[0] > 2.0**-20:  # infinite where the windows are so small that no envelope converges
        with pytest.raises(WindowTooSmall):
            roots(small, words_of("w", 1), allowance=2.0**-20)


def test_thousands_of_empty_leaves_fit_a_double():
    """The values of 300,000 empty cells rise by more than a double can over the window; decimals say what they are."""
    noise = DiscreteGaussian(9)
    store, ids = leaves([0], noise, 0, 10**6, 55)
    top, m = 90, 300_000
    summed = sums(store, Groups.of([[(int(ids[0]), m)]]), 0, top)
    assert summed.tilt[0] > 0
    with localcontext() as context:
        context.prec = 40
        power, square = [Decimal(1)], [Decimal(float(w)) for w in factor_table(noise.weights)[:56]]
        while m:
            if m & 1:
                power = convolved_decimals(power, square, top)
            square, m = convolved_decimals(square, square, top), m >> 1
        assert power[top] / power[0] > Decimal("1e320")
        _, stored, _ = values(summed, 0)
        for true, weight in zip(power, stored, strict=True):
            ratio = weight / stored[0]
            found = Decimal(ratio.numerator) / Decimal(ratio.denominator)
            assert abs(true / power[0] / found - 1) < Decimal("1e-12")


def convolved_decimals(a, b, top):
    out = [Decimal(0)] * (top + 1)
    for i, x in enumerate(a[: top + 1]):
        for j, y in enumerate(b[: top + 1 - i]):
            out[i + j] += x * y
    return out


def test_what_no_window_holds_is_refused_with_its_rows():
    noise = DiscreteGaussian(1)
    store, ids = leaves([0, 50], noise, 0, 10**6, 10)
    with pytest.raises(WindowTooSmall, match="box") as caught:
        times(store, [0, 50], None, [0, 5], [10, 9])
    assert caught.value.rows.tolist() == [1]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(WindowTooSmall, match="reach"):
        sums(store, Groups.of([[(0, 1), (1, 1)]]), 90, 99)
    with pytest.raises(WindowTooSmall, match="total"):
        split(store, Groups.of([[(0, 1), (1, 1)]]), 75, words_of("w", 2))
    with pytest.raises(WindowTooSmall, match="true count"):
        times(store.pick([1]), [10**5], noise, 0, 10**6)
    with pytest.raises(WindowTooSmall, match="leaf"):
        leaves([0], noise, 90, 99, 10)
    assert ids.tolist() == [0, 1]


def test_a_window_that_holds_too_little_is_noticed_at_the_root():
    """Fifty empty cells shift their sum away from a node whose window is only a few deviations wide."""
    noise = DiscreteGaussian(4)
    store, ids = leaves([0], noise, 0, 10**6, 40)
    groups = Groups.of([[(int(ids[0]), 50)]])
    narrow = times(sums(store, groups, 0, 6), 0, noise, 0, 10**6)
    wide = times(sums(store, groups, 0, 60), 0, noise, 0, 10**6)
    assert 1 - np.exp(narrow.log_total() - wide.log_total())[0] > 0.3  # it does hold too little ...
    with pytest.raises(WindowTooSmall, match="leave out"):  # ... and says so
        roots(narrow, words_of("w", 1))
    assert roots(wide, words_of("w", 1)).lost[0] < 2.0**-100


@settings(max_examples=60)
@given(
    a=st.lists(st.floats(1e-12, 1), min_size=1, max_size=30),
    b=st.lists(st.floats(1e-12, 1), min_size=1, max_size=30),
    skip=st.integers(-3, 12),
    size=st.integers(1, 40),
)
def test_convolution_in_rows_of_eight(a, b, skip, size):
    out = np.empty(size)
    error = convolve(np.array(a), np.array(b), skip, out)
    _, exact = convolved([(0, [Fraction(x) for x in a]), (0, [Fraction(x) for x in b])])
    for t in range(size):
        at = t + skip
        true = exact[at] if 0 <= at < len(exact) else Fraction(0)
        assert abs(Fraction(float(out[t])) - true) <= true * Fraction(error)


@settings(max_examples=40)
@given(data=st.data())
def test_each_outcome_has_its_probability_in_the_tails_too(data):
    """All words that lead to an outcome form an interval; its length by bisection is the probability, exactly."""
    left = data.draw(st.lists(st.floats(0.01, 0.9), max_size=12))
    right = data.draw(st.lists(st.floats(0.01, 0.9), max_size=12))
    # Log-concave: ratios of neighbours fall from left to right.
    weights = np.concatenate(
        [np.cumprod(sorted(left, reverse=True))[::-1], [1.0], np.cumprod(sorted(right, reverse=True))]
    )

    def drawn(word):
        return choose(weights, np.array([word >> 64, word & (2**64 - 1)], dtype=np.uint64))

    ends = [0]
    for k in range(len(weights)):
        low, high = ends[-1], 2**128
        while low < high:
            middle = (low + high) // 2
            if drawn(middle)[0] <= k:
                low = middle + 1
            else:
                high = middle
        ends.append(low)
    assert ends[-1] == 2**128
    error = Fraction(drawn(0)[1])
    total = sum(Fraction(float(w)) for w in weights)
    for k, weight in enumerate(weights):
        true = Fraction(float(weight)) / total
        assert abs(Fraction(ends[k + 1] - ends[k], 2**128) - true) <= error * true + Fraction(2, 2**128)
    assert error < 1e-12


def test_the_draws_of_a_group_do_not_depend_on_its_batch():
    noise = DiscreteGaussian(9)
    store, ids = leaves([0, 1, 2, 7, 40], noise, 0, 10**6, 55)
    rng = np.random.default_rng(4)
    rows = [
        [(int(i), int(m)) for i, m in zip(rng.permutation(ids)[:k], rng.integers(1, 12, k), strict=True)]
        for k in rng.integers(1, 6, 25)
    ]
    groups = Groups.of(rows)
    totals = np.array([int(rng.integers(0, 3 * sum(m for _, m in row) + 20)) for row in rows])
    words = words_of("batch", int(groups.expanded[-1]))
    together = split(store, groups, totals, words)
    sizes = np.add.reduceat(together.draws, groups.expanded[:-1])
    assert (sizes == totals).all()
    assert (together.draws >= 0).all()
    assert together.lost.max() < 2.0**-110
    for g in range(len(groups)):
        own = slice(groups.expanded[g], groups.expanded[g + 1])
        alone = split(store, groups.pick([g]), totals[g], words[own])
        assert (alone.draws == together.draws[own]).all()
        other = words[own].copy()
        other[0] = 12345  # the row of a group's first member is never read
        assert (split(store, groups.pick([g]), totals[g], other).draws == together.draws[own]).all()


@pytest.mark.parametrize("m", [1, 2, 3, 5, 8, 13, 64, 100, 257])
def test_a_window_counts_in_every_place_of_the_tree_where_it_stands(m):
    """The union bound of ``tree.md``: a power is computed from few pieces, which stand for m members in many places."""
    store, _ = leaves([4], DiscreteGaussian(9), 0, 10**6, 60)
    members, times = np.array([0]), np.array([m])
    low = high = 4 * m
    _, limits, pieces = plan(store.sealed().arrays, members, times, low, high, np.log(2.0**-6))

    def places(p):
        yield p
        for child in pieces[p, :2]:
            if child >= 0:
                yield from places(child)

    everywhere = list(places(len(pieces) - 1))
    assert sum(1 for p in everywhere if pieces[p, 0] < 0) == m
    widest = pieces[:, 3] * (len(store.weight) - 1)
    below = sum(pieces[p, 4] > max(0, low - (widest[-1] - widest[p])) for p in everywhere[1:])
    above = sum(pieces[p, 5] < min(widest[p], high) for p in everywhere[1:])
    assert limits[:2] == (below, above)
    assert m < 64 or limits[1] > m  # far more than there are pieces


def test_every_row_but_the_first_decides_something():
    store, _ = leaves([5], DiscreteGaussian(9), 0, 10**6, 55)
    groups = Groups.of([[(0, 6)]])
    words = words_of("rows", 6)
    before = split(store, groups, 30, words).draws
    for row in range(1, 6):
        changed = words.copy()
        changed[row] = ~changed[row]
        assert (split(store, groups, 30, changed).draws != before).any()


@pytest.mark.parametrize("total", [3, 11])
def test_the_order_and_the_grouping_of_members_do_not_change_the_law(total):
    noise = DiscreteLaplace(1)
    store, ids = leaves([0, 3], noise, 0, 10**6, 120)
    doubled = concat([store, store])
    n = 20_000
    zero, three = (int(i) for i in ids)
    tables = {}
    for name, row, place in (
        ("powers", [(zero, 3), (three, 1)], 3),
        ("reversed", [(three, 1), (zero, 3)], 0),
        ("written out", [(zero, 1), (three, 1), (zero + 2, 1), (zero, 1)], 1),
    ):
        groups = Groups.of([row] * n)
        draws = split(doubled, groups, total, words_of(name, 4 * n)).draws.reshape(n, 4)
        rest = np.delete(draws, place, axis=1)
        key = draws[:, place] * 1000 + np.minimum(rest.max(axis=1), 6)
        tables[name] = key
    kinds = np.unique(np.concatenate(list(tables.values())), return_inverse=True)[1].reshape(3, n)
    counts = np.stack([np.bincount(row, minlength=kinds.max() + 1) for row in kinds])
    common = counts.sum(axis=0) > 40
    assert stats.chi2_contingency(counts[:, common]).pvalue > 1e-6


def test_groups_and_words_must_fit():
    store, _ = leaves([0], DiscreteGaussian(1), 0, 10**6, 20)
    with pytest.raises(ValueError, match="rows"):
        split(store, Groups.of([[(0, 2)]]), 1, words_of("w", 1))
    with pytest.raises(ValueError, match="rows"):
        roots(store, words_of("w", 2))
    with pytest.raises(ValueError, match="multiplicity"):
        Groups.of([[(0, 0)]])
    assert len(sums(store, Groups.of([]), [], [])) == 0
    assert isinstance(store.pick([]), Messages)


def test_words_follow_from_their_definition():
    key = RunKey.for_testing("definition")
    extracted = hmac.digest(bytes(32), key.secret, "sha256")
    material, block = b"", b""
    for i in (1, 2, 3, 4):
        block = hmac.digest(extracted, block + b"das noise streams v1\0" + b"plan" + bytes([i]), "sha256")
        material += block
    name = b"6:county,1:q,1:m,5:44001,"
    nonce = hashlib.blake2b(name, key=material[:32], digest_size=12, person=b"das stream name").digest()
    cipher = Cipher(algorithms.AES(material[96:]), modes.ECB()).encryptor()
    bundle = key.streams(b"plan").bundle([("nation", "", "q", "m"), ("county", "44001", "q", "m")])
    positions = np.array([0, 7, 2**32 - 1])
    for position, (high, low) in zip(positions, bundle.words(np.array([1, 1, 1]), positions), strict=True):
        block = cipher.update(nonce + int(position).to_bytes(4, "little"))
        assert int(high) == int.from_bytes(block[:8], "little")
        assert int(low) == int.from_bytes(block[8:], "little")
    # Frozen on purpose, like the lanes: a change is a change of every release made under a testing key.
    golden = RunKey.for_testing("golden").streams(b"").bundle([("county", "44001", "q", "m")])
    assert golden.words(np.array([0]), np.array([3])).tolist() == [[10249413806322762117, 866535953069760342]]
