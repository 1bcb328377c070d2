"""Keyed streams: every random bit is a function of (run key, stream name, position).

A retry, another batch size or another order of work reads the same bits at the same place; see ``stream.md``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from threading import local
from typing import NamedTuple, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from das.errors import Problem, UsageError
from das.noise.locked_memory import LockedMemory

LANES_PER_BLOCK = 8  # a 16-byte AES block holds eight 16-bit lanes
MAX_POSITIONS = 2**32  # a position must fit the counter's 32 bits
_TILE_BLOCKS = 4096  # blocks encrypted at a time: few enough for the cache, many enough to forget the calls
_COUNTS = np.arange(_TILE_BLOCKS, dtype=np.int64) << 32
_DOMAIN = b"das noise streams v1\0"


class StreamName(NamedTuple):
    """What a stream of noise is for; two equal names are one stream.

    Examples
    --------
    >>> StreamName("county", "44001", "sex*age", "discrete-gaussian(sigma2=3/2)").query
    'sex*age'
    """

    geolevel: str
    geocode: str
    query: str
    mechanism: str


class RunKey:
    """The secret from which all noise of one run follows.

    Whoever holds it can subtract the noise; it lives in the confidential folder, and in locked memory while it is used.
    Its text form never shows it, and it cannot be pickled, so that it never travels with a pipeline.

    Parameters
    ----------
    secret : bytes or LockedMemory
        32 bytes.
    is_testing : bool
        True for a key made from a text; a run under such a key can never be called a release.

    Examples
    --------
    >>> RunKey.for_testing("a world of three blocks")
    RunKey(testing)
    >>> RunKey(b"short")
    Traceback (most recent call last):
    das.errors.UsageError: run key: it has 5 bytes, not 32; use RunKey.generate()
    """

    __slots__ = ("is_testing", "memory")

    SIZE = 32

    def __init__(self, secret: bytes | LockedMemory, is_testing: bool = False) -> None:
        size = secret.size if isinstance(secret, LockedMemory) else len(secret)
        if size != self.SIZE:
            raise UsageError(Problem("run key", f"it has {size} bytes, not {self.SIZE}", "use RunKey.generate()"))
        self.memory = secret if isinstance(secret, LockedMemory) else LockedMemory(secret)
        self.is_testing = is_testing

    @property
    def secret(self) -> bytes:
        """A copy of the secret in ordinary memory, which Python cannot wipe; :attr:`memory` makes none."""
        with self.memory.view() as view:
            return bytes(view)

    def __repr__(self) -> str:
        return "RunKey(testing)" if self.is_testing else "RunKey(secret)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunKey) or self.is_testing != other.is_testing:
            return False
        with self.memory.view() as mine, other.memory.view() as theirs:
            return hmac.compare_digest(mine, theirs)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a run key does not leave its process")

    @classmethod
    def generate(cls) -> RunKey:
        """Return a fresh key from the operating system's generator."""
        return cls(LockedMemory.random(cls.SIZE))

    @classmethod
    def for_testing(cls, text: str) -> RunKey:
        """Return the key that belongs to a text: reproducible, and marked as testing."""
        return cls(hashlib.sha256(b"das testing key\0" + text.encode()).digest(), is_testing=True)

    def streams(self, context: bytes) -> Streams:
        """Return the streams of this key for one context, usually the digest of the plan."""
        return Streams(self, context)


class Streams:
    """All streams of one run key and context.

    HKDF-SHA256 (RFC 5869) turns the run key into four independent keys: BLAKE2b for names, AES-256 for lanes, AES-256
    for the bits of draws that a lane cannot decide, AES-256 for whole words.

    Examples
    --------
    >>> streams = RunKey.for_testing("doc").streams(b"plan")
    >>> bundle = streams.bundle([("county", "44001", "total", "m"), ("county", "44003", "total", "m")])
    >>> [lanes.size for start, lanes in bundle.lanes(10)]
    [20]
    """

    __slots__ = ("_desk", "_keys", "_unnamed")

    def __init__(self, key: RunKey, context: bytes) -> None:
        self._keys = LockedMemory(128)
        with key.memory.view() as secret, self._keys.view() as keys:
            HKDF(SHA256(), length=128, salt=None, info=_DOMAIN + context).derive_into(secret, keys)
            self._unnamed = hashlib.blake2b(key=keys[:32], digest_size=12, person=b"das stream name")
        self._desk = _ThreadState(self._keys)

    def wipe(self) -> None:
        """Overwrite the keys. What is asked of these streams afterwards is refused, never drawn from other keys."""
        self._keys.wipe()
        del self._desk, self._unnamed

    def bundle(self, names: Iterable[tuple[str, str, str, str]]) -> Bundle:
        """Return the streams of the given (geolevel, geocode, query, mechanism) names, in that order."""
        shared: dict[tuple[str, str, str], hashlib.blake2b] = {}  # what siblings share is hashed once
        nonces = bytearray()
        for geolevel, geocode, query, mechanism in names:
            prefix = shared.get((geolevel, query, mechanism))
            if prefix is None:
                prefix = shared[geolevel, query, mechanism] = self._unnamed.copy()
                # Every part stands behind its length, so that no two names share an encoding.
                parts = f"{len(geolevel)}:{geolevel},{len(query)}:{query},{len(mechanism)}:{mechanism},"
                prefix.update(parts.encode())
            name = prefix.copy()
            name.update(f"{len(geocode)}:{geocode},".encode())
            nonces += name.digest()
            nonces += b"\0\0\0\0"  # where the counter goes
        return Bundle(self._desk, self._keys, nonces)

    def bits(self, name: tuple[str, str, str, str]) -> Bits:
        """Return unlimited bits of one stream as a whole, for the reference samplers."""
        return self.bundle([name]).bits(0, MAX_POSITIONS)


class Bundle:
    """Several streams read side by side.

    A stream's 96-bit nonce is the keyed hash of its name. Its keystream is AES-256 in counter mode: block c is
    AES(nonce || c), and position i is the 16-bit lane i % 8 of block i // 8, all little-endian.
    """

    __slots__ = ("_desk", "_keys", "_nonces", "count")

    def __init__(self, desk: _ThreadState, keys: LockedMemory, nonces: bytearray) -> None:
        self._desk = desk
        self._keys = keys
        # Sixteen bytes as two integers; the upper half of the second is free for the counter.
        self._nonces = np.frombuffer(nonces, dtype="<i8").reshape(-1, 2)
        self.count = len(self._nonces)

    def lanes(self, n: int) -> Iterator[tuple[int, NDArray[np.uint16]]]:
        """Yield (start, lanes): runs that together cover n positions of every stream, stream after stream.

        Position i of stream s stands at place s * n + i. A run is read before the thread asks for other lanes.

        Notes
        -----
        Counter blocks of many streams go through one ECB call, which is counter mode by definition: the cipher's output
        is the keystream. A run is a tile of several whole streams, or a part of one long stream.
        """
        if not 0 <= n <= MAX_POSITIONS:
            raise UsageError(Problem("noise stream", f"{n} draws were asked of one stream", f"at most {MAX_POSITIONS}"))
        if n == 0:
            return
        desk = self._desk
        blocks = -(-n // LANES_PER_BLOCK)
        together = max(1, _TILE_BLOCKS // blocks)
        for stream in range(0, self.count, together):
            nonces = self._nonces[stream : stream + together, None]
            for block in range(0, blocks, _TILE_BLOCKS):
                width = min(blocks - block, _TILE_BLOCKS)
                size = len(nonces) * width
                tile = desk.counters[:size].reshape(-1, width, 2)
                tile[:, :, 0] = nonces[:, :, 0]
                np.add(nonces[:, :, 1], _COUNTS[:width], out=tile[:, :, 1])
                if block:
                    tile[:, :, 1] += block << 32
                desk.encrypt(desk.counter_bytes[: 16 * size], desk.keystream_bytes)
                lanes = desk.keystream[: LANES_PER_BLOCK * size]
                first = LANES_PER_BLOCK * block
                if n - first < LANES_PER_BLOCK * width:
                    lanes = lanes.reshape(len(nonces), -1)[:, : n - first].reshape(-1)
                yield stream * n + first, lanes

    def more(self, streams: NDArray[np.intp], positions: NDArray[np.intp]) -> NDArray[np.uint64]:
        """Return 48 further bits for each (stream, position): from AES(nonce || position) under the third key."""
        blocks = self._nonces.take(streams, axis=0)
        blocks[:, 1] += positions << 32
        keystream: NDArray[np.uint64] = np.frombuffer(self._desk.encrypt_deep(blocks.tobytes()), dtype="<u8")
        return keystream[::2] >> np.uint64(16)

    def more_at(self, stream: int, position: int) -> int:
        """Return the same 48 bits for one place."""
        block = self._nonces[stream].tobytes()[:12] + position.to_bytes(4, "little")
        return int.from_bytes(self._desk.encrypt_deep(block)[2:8], "little")

    def words(self, streams: NDArray[np.intp], positions: NDArray[np.intp]) -> NDArray[np.uint64]:
        """Return 128 bits for each (stream, position) as two words: AES(nonce || position) under the fourth key.

        Examples
        --------
        >>> bundle = RunKey.for_testing("doc").streams(b"plan").bundle([("county", "44001", "total", "m")])
        >>> bundle.words(np.zeros(3, dtype=np.intp), np.arange(3)).shape
        (3, 2)
        """
        blocks = self._nonces.take(streams, axis=0)
        blocks[:, 1] += positions << 32
        words: NDArray[np.uint64] = np.frombuffer(self._desk.encrypt_words(blocks.tobytes()), dtype="<u8")
        return words.reshape(-1, 2)

    def bits(self, stream: int, position: int) -> Bits:
        """Return the unlimited bits that belong to one position of one stream."""
        purpose = self._nonces[stream].tobytes() + position.to_bytes(8, "little")
        with self._keys.view() as keys:
            return Bits(keys[:32], purpose)


class _ThreadState(local):
    """What one thread works with, and no other: the three AES contexts and the buffers of a tile."""

    def __init__(self, keys: LockedMemory) -> None:
        with keys.view() as view:
            lane, deep, word = (algorithms.AES(view[start : start + 32]) for start in (32, 64, 96))
            self.encrypt = Cipher(lane, modes.ECB()).encryptor().update_into
            self.encrypt_deep = Cipher(deep, modes.ECB()).encryptor().update
            self.encrypt_words = Cipher(word, modes.ECB()).encryptor().update
        self.counters = np.empty((_TILE_BLOCKS, 2), dtype="<i8")
        self.keystream = np.empty((_TILE_BLOCKS + 1) * LANES_PER_BLOCK, dtype="<u2")  # the library asks for the slack
        self.counter_bytes = self.counters.reshape(-1).view(np.uint8).data
        self.keystream_bytes = self.keystream.view(np.uint8).data


class Bits:
    """An unlimited source of bits for one purpose: keyed BLAKE2b of (purpose, 0), (purpose, 1), ...

    Examples
    --------
    >>> bits = RunKey.for_testing("doc").streams(b"").bits(("nation", "", "total", "m"))
    >>> 0 <= bits.take(5) < 32
    True
    """

    __slots__ = ("_available", "_blocks", "_pool", "_state")

    def __init__(self, key: bytes | memoryview, purpose: bytes) -> None:
        self._state = hashlib.blake2b(purpose, key=key, digest_size=64, person=b"das stream bits")
        self._blocks = 0
        self._pool = 0
        self._available = 0

    def take(self, count: int) -> int:
        """Return the next `count` bits as an integer in [0, 2**count)."""
        while self._available < count:
            block = self._state.copy()
            block.update(self._blocks.to_bytes(8, "little"))
            self._blocks += 1
            self._pool |= int.from_bytes(block.digest(), "little") << self._available
            self._available += 512
        taken = self._pool & ((1 << count) - 1)
        self._pool >>= count
        self._available -= count
        return taken
