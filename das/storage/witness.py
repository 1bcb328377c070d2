"""A ledger's witness: a file outside the ledger that repeats the ledger's head after every change.

A ledger that was deleted, or put back to an older copy, is sound in itself. Only something outside it can say that
there was more. Each line of a witness is a checkpoint (the term of transparency logs): how many entries the ledger
had, the hash of the last, what was spent on each data set, and, where a run was charged, the fingerprint of its
population. Lines are chained by hashes, as the entries are. All copies of a witness hold the same lines; one that was
not reachable for a while has fewer.

A witness holds the salt of its fingerprints, so it is as confidential as the data: mode 0600, and never published.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from das.storage.files import fsync, full_disk_interrupts, write_atomically
from das.storage.population import Fingerprint

__all__ = ["Account", "Checkpoint", "Damaged", "Witness", "read_witnesses", "write_copy"]

PATTERN = ".das-witness-*.jsonl"
ABOUT = (
    "This file remembers what das has spent on the data beside it, in case the ledger is lost or replaced. Keep it "
    "secret and do not delete it; das/storage/ledger.md explains it."
)
_BEGIN = "0" * 64


class Damaged(ValueError):
    """A file that is not the witness it should be."""


@dataclass(frozen=True, slots=True)
class Account:
    """What a ledger said of one data set."""

    framework: str
    total: Fraction
    spent: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The ledger's head at one moment; `run_id`, `dataset` and `population` where it was written for a charge."""

    ledger: str
    seq: int
    head: str
    accounts: Mapping[str, Account]
    run_id: str = ""
    dataset: str = ""
    population: Fingerprint | None = None
    previous: str = _BEGIN

    def to_json(self) -> dict[str, Any]:
        """Return plain data; fractions as text."""
        return {
            "ledger": self.ledger,
            "seq": self.seq,
            "head": self.head,
            "accounts": {
                name: [each.framework, str(each.total), str(each.spent)] for name, each in self.accounts.items()
            },
            "run_id": self.run_id,
            "dataset": self.dataset,
            "population": self.population.to_json() if self.population else None,
            "previous": self.previous,
        }

    @property
    def hash(self) -> str:
        """The sha256 of its canonical JSON; it covers the line before."""
        return hashlib.sha256(_canonical(self.to_json())).hexdigest()

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Checkpoint:
        """Read what :meth:`to_json` wrote."""
        accounts = {
            str(name): Account(str(framework), Fraction(total), Fraction(spent))
            for name, (framework, total, spent) in content["accounts"].items()
        }
        population = content["population"]
        return cls(
            ledger=str(content["ledger"]),
            seq=int(content["seq"]),
            head=str(content["head"]),
            accounts=accounts,
            run_id=str(content["run_id"]),
            dataset=str(content["dataset"]),
            population=None if population is None else Fingerprint.from_json(population),
            previous=str(content["previous"]),
        )


@dataclass(frozen=True, slots=True, repr=False)
class Witness:
    """The lines of one ledger's witness, whichever copy they were read from.

    Examples
    --------
    >>> one = Witness.begin(Path("ledger.sqlite"))
    >>> two = one.with_line(Checkpoint(ledger="ledger.sqlite", seq=2, head="ab", accounts={}))
    >>> two.continues(one), one.continues(two), Witness.parse(two.text()).checkpoints == two.checkpoints
    (True, False, True)
    """

    id: str
    salt: bytes
    begun_for: str
    about: str = ABOUT
    checkpoints: tuple[Checkpoint, ...] = ()

    @classmethod
    def begin(cls, ledger: Path) -> Witness:
        """Begin a witness with a salt of its own."""
        return cls(secrets.token_hex(16), secrets.token_bytes(32), str(ledger))

    @property
    def name(self) -> str:
        """The name of its files."""
        return PATTERN.replace("*", self.id)

    @property
    def mark(self) -> str:
        """What identifies it in the ledger's entries, and tells nothing of the salt."""
        return hmac.new(self.salt, b"das ledger witness", hashlib.sha256).hexdigest()

    @property
    def ledger(self) -> str:
        """Where its ledger was last."""
        return self.checkpoints[-1].ledger if self.checkpoints else self.begun_for

    def with_line(self, checkpoint: Checkpoint) -> Witness:
        """Add a checkpoint."""
        lines = self.checkpoints
        previous = lines[-1].hash if lines else hashlib.sha256(self._header()).hexdigest()
        return replace(self, checkpoints=(*lines, replace(checkpoint, previous=previous)))

    def continues(self, other: Witness) -> bool:
        """Whether this holds all lines of another copy."""
        return self._header() == other._header() and self.checkpoints[: len(other.checkpoints)] == other.checkpoints

    def lines(self) -> list[bytes]:
        """Return the file's lines: what it is, then the checkpoints."""
        return [self._header(), *(_canonical(each.to_json() | {"hash": each.hash}) for each in self.checkpoints)]

    def text(self) -> bytes:
        """Return the whole file."""
        return b"".join(line + b"\n" for line in self.lines())

    @classmethod
    def parse(cls, text: bytes) -> Witness:
        """Read a file; an incomplete last line is one whose writer was killed, and does not count.

        Raises
        ------
        Damaged
            Some line cannot be read, was altered, or does not follow from the one before.
        """
        complete = text[: text.rfind(b"\n") + 1]
        first, *rest = complete.split(b"\n")[:-1] or [b""]
        try:
            header = json.loads(first)
            found = cls(str(header["id"]), bytes.fromhex(header["salt"]), str(header["ledger"]), str(header["about"]))
            for line in rest:
                found = found.with_line(Checkpoint.from_json(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
            raise Damaged("it cannot be read") from error
        if found.text() != complete:  # the hashes are made again, so this compares them, too
            raise Damaged("a line was altered, or does not follow from the one before it")
        return found

    def _header(self) -> bytes:
        header = {"about": self.about, "id": self.id, "salt": self.salt.hex(), "ledger": self.begun_for}
        return _canonical(header)


def read_witnesses(folder: Path) -> list[tuple[Path, Witness | Damaged | None]]:
    """Read the witnesses in a folder: each file with its lines, with what is wrong with it, or None if it is closed."""
    found: list[tuple[Path, Witness | Damaged | None]] = []
    try:
        paths = sorted(folder.glob(PATTERN))
    except OSError:
        return []
    for path in paths:
        try:
            witness = Witness.parse(_read(path))
            found.append((path, witness if witness.name == path.name else Damaged("it has the name of another")))
        except PermissionError:
            found.append((path, None))
        except Damaged as error:
            found.append((path, error))
    return found


def write_copy(witness: Witness, folder: Path) -> None:
    """Make the copy in a folder complete, durably; the caller keeps others from writing at the same time.

    Lines are appended in place, so that a file that its owner made append-only (``chattr +a``) stays usable.
    """
    path = folder / witness.name
    with full_disk_interrupts(folder):
        try:
            text = _read(path)
        except FileNotFoundError:
            write_atomically(path, witness.text())
            return
        whole, wanted = text[: text.rfind(b"\n") + 1], witness.text()
        if not wanted.startswith(whole):
            raise Damaged("it holds other lines")
        if wanted == text:
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_mode & stat.S_IRWXO:  # somebody opened it to everybody
                os.fchmod(descriptor, 0o600)
            if whole != text:  # a writer was killed in the middle of a line
                os.ftruncate(descriptor, len(whole))
            with os.fdopen(descriptor, "ab", closefd=False) as file:
                file.write(wanted.removeprefix(whole))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        fsync(folder)


def _read(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Damaged("it is a symbolic link") from error
        raise
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Damaged("it is not a file")
        return file.read()


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
