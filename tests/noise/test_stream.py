"""Keyed streams: the same bits for the same name and position, whatever else is asked for."""

import hashlib
import hmac
import pickle
import threading

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from das.errors import UsageError
from das.noise import RunKey, StreamName
from das.noise.stream import MAX_POSITIONS

NAME = ("county", "44001", "sex*age", "discrete-gaussian(sigma2=3/2)")


def lanes_of(bundle, n):
    lanes = np.full(bundle.count * n, -1)
    for start, run in bundle.lanes(n):
        lanes[start : start + len(run)] = run
    return lanes.reshape(bundle.count, n)


def derived_keys(secret, context):
    """RFC 5869 by hand."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    material, block = b"", b""
    for i in (1, 2, 3):
        block = hmac.digest(extracted, block + b"das noise streams v1\0" + context + bytes([i]), "sha256")
        material += block
    return material[:32], material[32:64], material[64:]


def nonce_by_hand(name_key, name):
    level, geocode, query, mechanism = name
    encoded = "".join(f"{len(part)}:{part}," for part in (level, query, mechanism, geocode)).encode()
    return hashlib.blake2b(encoded, key=name_key, digest_size=12, person=b"das stream name").digest()


def aes(key, block):
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def test_every_bit_follows_from_the_definition():
    key = RunKey.for_testing("definition")
    name_key, lane_key, deep_key = derived_keys(key.secret, b"plan digest")
    nonce = nonce_by_hand(name_key, NAME)
    bundle = key.streams(b"plan digest").bundle([("nation", "", "total", "m"), NAME])
    lanes = lanes_of(bundle, 50)[1]
    for position in range(50):
        block = aes(lane_key, nonce + (position // 8).to_bytes(4, "little"))
        at = 2 * (position % 8)
        assert lanes[position] == int.from_bytes(block[at : at + 2], "little")
    for position in (0, 7, 2**32 - 1):
        block = aes(deep_key, nonce + position.to_bytes(4, "little"))
        assert bundle.more(np.array([1]), np.array([position]))[0] == int.from_bytes(block[2:8], "little")
    first = hashlib.blake2b(
        nonce + bytes(4) + (9).to_bytes(8, "little") + bytes(8), key=name_key, person=b"das stream bits"
    ).digest()
    assert bundle.bits(1, 9).take(512) == int.from_bytes(first, "little")


def test_golden_lanes():
    # Frozen on purpose: a change of these numbers is a change of every release made under a testing key.
    bundle = RunKey.for_testing("golden").streams(b"").bundle([NAME])
    assert lanes_of(bundle, 4).tolist() == [[33132, 27953, 18815, 50107]]
    assert bundle.bits(0, 0).take(32) == 3835360865


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5), n=st.integers(0, 100), data=st.data())
def test_bundling_and_length_change_nothing(sizes, n, data):
    streams = RunKey.for_testing("splitting").streams(b"")
    names = [("tract", str(i), "q", "m") for i in range(sum(sizes))]
    together = lanes_of(streams.bundle(names), n)
    parts, at = [], 0
    for size in sizes:
        parts.append(lanes_of(streams.bundle(names[at : at + size]), n))
        at += size
    assert np.array_equal(together, np.concatenate(parts))
    shorter = data.draw(st.integers(0, n))
    assert np.array_equal(lanes_of(streams.bundle(names), shorter), together[:, :shorter])


def test_long_streams_agree_with_short_ones(streams):
    # Longer than a tile, and not a multiple of anything.
    long = lanes_of(streams.bundle([NAME, ("a", "b", "c", "d")]), 70_001)
    for i, name in enumerate([NAME, ("a", "b", "c", "d")]):
        assert np.array_equal(lanes_of(streams.bundle([name]), 32_769)[0], long[i, :32_769])
    many = [("block", str(i), "q", "m") for i in range(1500)]
    assert np.array_equal(lanes_of(streams.bundle(many), 63)[1234], lanes_of(streams.bundle(many[1234:1235]), 63)[0])


def test_different_names_keys_and_contexts_give_different_streams():
    key = RunKey.for_testing("a")
    variants = [
        key.streams(b"x").bundle([NAME]),
        key.streams(b"y").bundle([NAME]),
        RunKey.for_testing("b").streams(b"x").bundle([NAME]),
        *(key.streams(b"x").bundle([(*NAME[:i], "other", *NAME[i + 1 :])]) for i in range(4)),
        key.streams(b"x").bundle([("county4", "4001", *NAME[2:])]),  # the same letters, cut elsewhere
        key.streams(b"x").bundle([(NAME[1], NAME[0], *NAME[2:])]),
    ]
    seen = {lanes_of(bundle, 16).tobytes() for bundle in variants}
    assert len(seen) == len(variants)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.text(), st.text(), st.text(), st.text()), min_size=2, max_size=6, unique=True))
def test_names_never_run_into_each_other(names):
    bundle = RunKey.for_testing("names").streams(b"").bundle(names)
    assert len({row.tobytes() for row in lanes_of(bundle, 8)}) == len(names)


def test_lanes_are_uniform(streams):
    counts = np.bincount(lanes_of(streams.bundle([NAME]), 2_000_000)[0] >> 8, minlength=256)
    expected = 2_000_000 / 256
    assert abs(((counts - expected) ** 2 / expected).sum() - 255) < 6 * (2 * 255) ** 0.5


def test_lanes_deep_bits_and_unlimited_bits_are_different_domains(streams):
    bundle = streams.bundle([NAME])
    lanes = lanes_of(bundle, 4096)[0]
    deep = bundle.more(np.zeros(4096, dtype=np.intp), np.arange(4096)) >> np.uint64(32)
    assert abs(np.corrcoef(lanes, deep.astype(float))[0, 1]) < 0.08
    assert bundle.bits(0, 3).take(64) != bundle.bits(0, 4).take(64)


@given(st.lists(st.integers(0, 600), max_size=8))
def test_bits_are_one_sequence_however_they_are_taken(counts):
    def source():
        return RunKey.for_testing("bits").streams(b"").bits(NAME)

    taken, at, bits = 0, 0, source()
    for count in counts:
        taken |= bits.take(count) << at
        at += count
    assert taken == source().take(at)


def test_threads_do_not_disturb_each_other(streams):
    names = [("tract", str(i), "q", "m") for i in range(4)]
    alone = lanes_of(streams.bundle(names), 300_000)
    results = {}

    def work(i):
        results[i] = [lanes_of(streams.bundle(names), 300_000) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(alone, lanes) for i in range(3) for lanes in results[i])


def test_keys_hide_their_secret_and_know_what_they_are():
    key = RunKey.generate()
    assert key != RunKey.generate()
    assert key.secret.hex() not in repr(key) + str(key)
    assert repr(key.secret) not in repr(key)
    assert not key.is_testing
    assert RunKey.for_testing("t").is_testing
    assert RunKey.for_testing("t") == RunKey.for_testing("t") != RunKey.for_testing("u")
    with pytest.raises(TypeError, match="does not leave its process"):
        pickle.dumps(RunKey.for_testing("t"))


@pytest.mark.parametrize("secret", [b"", b"x" * 31, b"x" * 33])
def test_a_key_has_32_bytes(secret):
    with pytest.raises(UsageError, match="32"):
        RunKey(secret)


def test_a_stream_ends_somewhere(streams):
    with pytest.raises(UsageError, match="draws were asked"):
        next(streams.bundle([NAME]).lanes(MAX_POSITIONS + 1))


def test_names_may_be_named_tuples(streams):
    named = StreamName(geolevel="county", geocode="44001", query="sex*age", mechanism=NAME[3])
    assert np.array_equal(lanes_of(streams.bundle([named]), 9), lanes_of(streams.bundle([NAME]), 9))
