"""Fingerprints of a population under a secret salt, by which the ledger knows the same people under another name.

Two things are compared: the contents of the input files, and the total of every geounit that is not empty. Totals do
not depend on the file's format, on the order of its rows or on which attributes a plan counts.

Whoever holds the salt can try totals against a fingerprint. Both are therefore as confidential as the data, and they
are kept in files of mode 0600 (`das.storage.witness`); nothing of them is published or sealed into the ledger.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geography import Spine

__all__ = ["Fingerprint", "Population", "population_of"]

SAMPLED = 1024
"""The most totals that a fingerprint keeps: enough to tell one half from two thirds, in 20 kB."""
_BITS = 64
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A population under a salt: keyed hashes of its files, and a sample of the keyed hashes of its totals.

    The sample holds the hashes below 2^(64 - halvings). Hashes are uniform, so two populations under one salt sample
    the same geounits, and the shared part of the samples estimates the shared part of the populations, also where one
    is much smaller than the other (this is FracMinHash: Irber et al. 2022, doi 10.1101/2022.01.11.475838).
    """

    files: tuple[str, ...]
    halvings: int
    totals: tuple[int, ...]

    def same_people(self, other: Fingerprint) -> bool:
        """Whether a file is the same, or more than half of the smaller population's totals are.

        Examples
        --------
        >>> def fingerprint(*totals): return Fingerprint((), 0, totals)
        >>> fingerprint(1, 2, 3).same_people(fingerprint(2, 3, 4, 5, 6))
        True
        >>> fingerprint(1, 2).same_people(fingerprint(2, 3)), fingerprint().same_people(fingerprint())
        (False, False)
        """
        if set(self.files) & set(other.files):
            return True
        below = 1 << (_BITS - max(self.halvings, other.halvings))
        mine, theirs = ({total for total in each.totals if total < below} for each in (self, other))
        return 2 * len(mine & theirs) > min(len(mine), len(theirs))

    def to_json(self) -> dict[str, Any]:
        """Return plain data; hashes as text, because JSON readers may round large numbers."""
        return {
            "files": list(self.files),
            "halvings": self.halvings,
            "totals": [f"{total:016x}" for total in self.totals],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Fingerprint:
        """Read what :meth:`to_json` wrote."""
        totals = tuple(int(total, 16) for total in content["totals"])
        return cls(tuple(map(str, content["files"])), int(content["halvings"]), totals)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Population:
    """What there is to compare: a hash of each input file, and geocodes with their totals, a pair of arrays a level."""

    files: tuple[str, ...]
    levels: tuple[tuple[NDArray[np.str_], NDArray[np.int64]], ...] = ()

    def fingerprint(self, salt: bytes) -> Fingerprint:
        """Hash everything under a salt; geounits without anybody do not count.

        One hash at a time is kept or not, because a nation has millions of geounits.
        """
        files = sorted(hmac.new(salt, each.encode(), hashlib.sha256).hexdigest() for each in self.files)
        kept: set[int] = set()
        halvings = 0
        for text in self._texts():
            # BLAKE2b with a key is a pseudorandom function, and several times faster than HMAC for short texts.
            digest = hashlib.blake2b(text.encode(), digest_size=_BITS // 8, key=salt).digest()
            number = int.from_bytes(digest, "big")
            if number < 1 << (_BITS - halvings):
                kept.add(number)
            while len(kept) > SAMPLED:
                halvings += 1
                kept = {each for each in kept if each < 1 << (_BITS - halvings)}
        return Fingerprint(tuple(files), halvings, tuple(sorted(kept)))

    def _texts(self) -> Iterator[str]:
        for geocodes, totals in self.levels:
            for start in range(0, len(totals), _AT_ONCE):
                here = slice(start, start + _AT_ONCE)
                pairs = zip(geocodes[here].tolist(), totals[here].tolist(), strict=True)
                yield from (f"{geocode} {total}" for geocode, total in pairs if total)


def population_of(
    files: Iterable[Mapping[str, str]], spine: Spine | None = None, totals: NDArray[np.int64] | None = None
) -> Population:
    """Gather what identifies a population.

    Parameters
    ----------
    files : iterable of mappings
        Name and sha256 of each input file.
    spine, totals : optional
        The total of each leaf, in the order of the spine. Levels above are summed, so that a plan with larger leaves
        is recognised, too.

    Examples
    --------
    >>> spine = Spine.from_paths(["state", "county"], [np.array(["1", "1"]), np.array(["11", "12"])])
    >>> [totals.tolist() for _, totals in population_of([], spine, np.array([3, 0])).levels]
    [[3], [3, 0]]
    """
    hashes = tuple(sorted(each["sha256"] for each in files))
    if spine is None or totals is None:
        return Population(hashes)
    return Population(hashes, tuple((spine.geocodes(level), spine.tabulate(level, totals)) for level in spine.levels))
