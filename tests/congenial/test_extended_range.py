"""Extended-range arithmetic against exact rationals: convolutions, what windows leave out, choices bit by bit."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from das.compiled import compiled
from das.congenial import extended_convolution
from das.congenial.convolution_kernels import UNIT
from das.congenial.extended_choice import CHOICE_ERROR, choose_extended
from das.congenial.extended_convolution import CONVOLUTION_ERROR, LOST_IN_A_STEP, longest_run
from das.congenial.extended_messages import roots_extended, split_alone, split_totals, sums_extended
from das.congenial.extended_range import factors, from_messages, leaves_extended, times_extended
from das.congenial.function_store import Groups, WindowTooSmall
from das.congenial.messages import leaves, split
from das.noise import DiscreteGaussian, DiscreteLaplace, RunKey
from das.noise.interval_arithmetic import Weights

# Parts of kernels, as machine code.
convolve_extended, spans = map(compiled, (extended_convolution.convolve_extended, extended_convolution.spans))
STEEP = Weights(Fraction(0), Fraction(700))
NOISES = [
    DiscreteGaussian(4).weights,
    DiscreteGaussian("1/500").weights,
    DiscreteLaplace("3/2").weights,
    DiscreteLaplace(40).weights,
    STEEP,
]


def words_of(text, n):
    bundle = RunKey.for_testing(text).streams(b"").bundle([("tree", "", "q", "m"), ("tree", "", "more", "m")])
    both = [bundle.words(np.full(n, stream, dtype=np.int64), np.arange(n)) for stream in (0, 1)]
    return np.concatenate(both, axis=1)


def exact(mantissa, exponent):
    return [Fraction(float(m)) * Fraction(2) ** int(e) for m, e in zip(mantissa, exponent, strict=True)]


def function_of(slopes):
    """A log-concave function with these slopes in bits (sorted), as mantissas, exponents and logarithms."""
    log2 = np.concatenate([[0.0], np.cumsum(sorted(slopes, reverse=True))])
    exponent = np.floor(log2).astype(np.int64) + 1
    mantissa = 2.0 ** (log2 - exponent)
    return mantissa, exponent, np.log2(mantissa) + exponent


def both_ends(value):
    return np.array([value, value])


SLOPES = st.one_of(
    st.lists(st.floats(-2, 2), max_size=60),
    st.lists(st.floats(-2000, 2000), max_size=12),
    st.lists(st.floats(-0.5, -0.49), min_size=100, max_size=200),
)


@pytest.mark.slow
@settings(max_examples=40)
@given(one=SLOPES, two=SLOPES, start=st.integers(-3, 3))
def test_convolutions_of_any_range_have_a_small_relative_error(one, two, start):
    a, b = function_of(one), function_of(two)
    low, high = start, start + len(a[0]) + len(b[0]) - 2
    found, valid = spans(a[2], b[2], 0, start, both_ends(True), both_ends(True), low, high)
    assert valid.all()
    mantissa, exponent = np.empty(len(valid)), np.empty(len(valid), dtype=np.int64)
    convolve_extended(a, b, 0, start, low, found, mantissa, exponent)
    first, second, sums = exact(*a[:2]), exact(*b[:2]), exact(mantissa, exponent)
    for t in range(0, len(sums), max(1, len(sums) // 12)):
        terms = range(max(0, t - len(second) + 1), min(len(first) - 1, t) + 1)
        true = sum(first[i] * second[t - i] for i in terms)
        assert abs(sums[t] / true - 1) <= Fraction(CONVOLUTION_ERROR)
    assert ((mantissa >= 0.5) & (mantissa < 1)).all()


@settings(max_examples=20)
@given(
    noise=st.sampled_from([DiscreteGaussian(3).weights, DiscreteLaplace(1).weights, DiscreteLaplace("1/3").weights]),
    other=st.sampled_from([DiscreteGaussian(5).weights, DiscreteLaplace("3/2").weights]),
    cut=st.tuples(st.integers(0, 150), st.integers(150, 400), st.integers(0, 150), st.integers(150, 400)),
)
def test_what_valid_windows_leave_out_is_as_small_as_the_bound_says(noise, other, cut):
    """Both functions are known on 0 to 400; the windows show a part, and say for which totals it is enough."""
    whole = [leaves_extended([150], weights, [0], [400], [0], [400]) for weights in (noise, other)]
    a, b = (exact(f.mantissa, f.exponent) for f in whole)
    (p, q), (r, s) = cut[:2], cut[2:]
    low, high = p + r, q + s
    logs = whole[0].log2[p : q + 1], whole[1].log2[r : s + 1]
    _, valid = spans(*logs, p, r, np.array([p == 0, q == 400]), np.array([r == 0, s == 400]), low, high)
    totals = low + np.flatnonzero(valid)
    for t in totals[:: max(1, len(totals) // 3)].tolist():
        terms = {i: a[i] * b[t - i] for i in range(max(0, t - 400), min(400, t) + 1)}
        outside = sum(term for i, term in terms.items() if not (p <= i <= q and r <= t - i <= s))
        assert outside <= Fraction(LOST_IN_A_STEP) * sum(terms.values())


def test_the_longest_run_is_kept():
    assert longest_run(np.array([True, False, True, True, False])) == (2, 3)
    assert longest_run(np.array([False])) == (0, -1)


@pytest.mark.parametrize("weights", NOISES, ids=range(len(NOISES)))
def test_factors_are_right_to_their_last_bits_however_small(weights):
    length = 1500
    mantissa, exponent = factors(weights, length)
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 80, -(10**15), 10**15
        for k in range(0, length, 97):
            true = weights.exponent(k)
            found = Decimal(float(mantissa[k])) * Decimal(2) ** int(exponent[k])
            error = found * (Decimal(true.numerator) / Decimal(true.denominator)).exp() - 1
            assert abs(error) <= Decimal(2 * UNIT)


@settings(max_examples=25)
@given(
    left=st.lists(st.floats(1e-30, 0.9), max_size=10),
    right=st.lists(st.floats(1e-30, 0.9), max_size=10),
)
def test_each_outcome_has_its_probability_to_the_last_bits(left, right):
    """All words of 256 bits that lead to an outcome form an interval; its length by bisection is the probability."""
    weights = np.concatenate(
        [np.cumprod(sorted(left, reverse=True))[::-1], [1.0], np.cumprod(sorted(right, reverse=True))]
    )
    assume((weights > 1e-290).all())

    def drawn(word):
        parts = [word >> shift & (2**64 - 1) for shift in (192, 128, 64, 0)]
        return choose_extended(weights, np.array(parts, dtype=np.uint64))

    ends = [0]
    for k in range(len(weights)):
        low, high = ends[-1], 2**256
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if drawn(middle) <= k else (low, middle)
        ends.append(low)
    assert ends[-1] == 2**256
    total = sum(Fraction(float(w)) for w in weights)
    for k, weight in enumerate(weights):
        true = Fraction(float(weight)) / total
        error = abs(Fraction(ends[k + 1] - ends[k], 2**256) - true)
        assert error <= Fraction(CHOICE_ERROR) / 2**20 * true + Fraction(2, 2**256)


@pytest.mark.parametrize("m", [1, 3, 8, 40])
def test_sums_of_equal_members_are_their_exact_power(m):
    leaf = leaves_extended([0], STEEP, [0], [10**9], [0], [6])
    summed = sums_extended(leaf, Groups.of([[(0, m)]]), np.array([0]), np.array([6]))
    base, power = exact(leaf.mantissa, leaf.exponent), [Fraction(1), *[Fraction(0)] * 6]
    for _ in range(m):
        power = [sum(power[i] * base[t - i] for i in range(t + 1)) for t in range(7)]
    found = exact(summed.mantissa, summed.exponent)
    for t in range(7):
        assert abs(found[t] / found[0] / (power[t] / power[0]) - 1) <= 2 * Fraction(float(summed.error[0]))


def test_a_split_in_extended_range_is_the_split_in_doubles():
    """One tree of partial sums, one row of words for each cut: the arithmetic decides only the last bits."""
    noise = DiscreteGaussian(9)
    store, ids = leaves([0, 1, 7, 40], noise, 0, 10**6, 55)
    groups = Groups.of([[(int(ids[0]), 12), (int(ids[2]), 1), (int(ids[3]), 2)], [(int(ids[1]), 5)]])
    words = words_of("both", 20)
    drawn = split(store, groups, [93, 11], words).draws
    one, lost, error = split_alone(store, groups.pick([0]), 93, words[:15])
    two, _, _ = split_alone(store, groups.pick([1]), 11, words[15:])
    assert np.concatenate([one, two]).tolist() == drawn.tolist()
    assert lost < 2.0**-120
    assert error < 1e-13
    impossible = split(store, groups, [93, 11], words, allowance=1e-300, rounding_allowance=0.0)
    assert impossible.draws.tolist() == drawn.tolist()
    assert (impossible.lost < 2.0**-120).all()


def test_rows_of_words_decide_cuts_and_the_first_is_never_read():
    functions = leaves_extended([5], DiscreteGaussian(9).weights, [0], [10**6], [0], [80])
    groups, totals = Groups.of([[(0, 6)]]), np.array([30])
    words = words_of("rows", 6)
    before = split_totals(functions, groups, totals, words)
    for row in range(6):
        changed = words.copy()
        changed[row] = ~changed[row]
        assert (split_totals(functions, groups, totals, changed) != before).any() == (row > 0)


def test_windows_that_do_not_hold_are_noticed():
    noise = DiscreteGaussian(4).weights
    narrow = leaves_extended([50], noise, [0], [10**6], [45], [55])
    with pytest.raises(WindowTooSmall, match="root"):
        roots_extended(narrow, words_of("w", 1))
    with pytest.raises(WindowTooSmall, match="determine"):
        sums_extended(narrow, Groups.of([[(0, 3)]]), np.array([150]), np.array([150]))
    with pytest.raises(WindowTooSmall, match="interval"):
        times_extended(narrow, [50], None, [60], [70])
    with pytest.raises(WindowTooSmall, match="interval"):
        leaves_extended([50], noise, [0], [10**6], [10**7], [10**8])
    wide = leaves_extended([50], noise, [0], [10**6], [0], [150])
    assert 30 < roots_extended(wide, words_of("w", 1))[0] < 70


def test_messages_become_functions_exactly():
    store, _ = leaves([3, 900], DiscreteLaplace("1/2"), 0, 10**6, 450)
    functions = from_messages(store, [1, 0])
    for k, i in enumerate((1, 0)):
        own = slice(functions.offset[k], functions.offset[k + 1])
        weight = store.weight[store.offset[i] : store.offset[i + 1]]
        shown = np.ldexp(functions.mantissa[own], functions.exponent[own].astype(np.int32))
        assert shown.tolist() == weight[weight > 0].tolist()
        assert functions.first[k] == store.first[i] + np.flatnonzero(weight)[0]
