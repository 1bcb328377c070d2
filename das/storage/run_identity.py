"""Run identity: the run's id, its noise key, and its charge in the ledger.

The order of the steps is what protects. The key is durable before the ledger is charged, the ledger is charged before
anything is drawn, the measurements are durable before the charge is committed, and only then is the key destroyed. A
run killed at any point finds its key again and draws the same noise; a run that lost its key draws nothing. A run that
is refused before it was charged leaves no key.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from das.errors import BudgetError, Interrupted, Problem, ProblemsFound, UsageError
from das.exact import digest_of, digest_of_input
from das.noise.stream import RunKey
from das.plan.plan import Plan
from das.storage.files import (
    commitment,
    json_bytes,
    make_private,
    make_public,
    secure_delete,
    unfinished,
    write_atomically,
)
from das.storage.handles import read_within
from das.storage.key_file import destroy_key, write_key
from das.storage.layout import Layout
from das.storage.ledger import Ledger
from das.storage.ledger_access import guard_of, input_folders, ledger_path, refuse_early
from das.storage.ledger_entries import DECISIONS
from das.storage.permissions import secure
from das.storage.population import Population, population_of
from das.storage.staging import committed
from das.storage.testing_key import UNPROTECTED, is_unprotected

__all__ = ["RunIdentity", "RunRecord", "ledger_path"]

NO_TIME = None
"""A test run keeps no times, so that two of them are the same, byte by byte."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the statement and the manifest publish about the run."""

    seeded: bool
    unprotected: bool
    charged: Fraction
    ledger_entry: dict[str, Any]
    inputs: list[dict[str, str]]
    started: str | None


@dataclass(frozen=True)
class RunIdentity:
    """The identity of one run in one folder."""

    plan: Plan
    layout: Layout
    run_id: str
    started: str
    testing_key: str | None

    @classmethod
    def claim(
        cls, plan: Plan, layout: Layout, testing_key: str | None, *, allow_unprotected: bool = False
    ) -> RunIdentity:
        """Begin a run of this plan in the folder, or continue the one that is there; refuse any other."""
        unprotected = is_unprotected(plan, testing_key, allowed=allow_unprotected)
        if not layout.run.exists():
            _refuse_strangers(layout)  # before anything in the folder is touched
        secure(layout, unprotected=unprotected)
        identity = (cls._continue if layout.run.exists() else cls._begin)(plan, layout, testing_key)
        (make_private if unprotected else make_public)(layout.release.path)
        if not identity.seeded and committed(layout.release.mechanism(plan)) is None:
            refuse_early(plan, run_id=identity.run_id, run=layout.confidential.path)
        return identity

    @classmethod
    def _begin(cls, plan: Plan, layout: Layout, testing_key: str | None) -> RunIdentity:
        for path in unfinished(layout.run):
            path.unlink()
        for path in (layout.confidential.key, layout.confidential.salt):
            secure_delete(
                path
            )  # of an abandoned run: a new run needs a key of its own, or it would draw the same noise
        if testing_key is None:
            run_id = secrets.token_hex(16)
        else:
            run_id = hashlib.sha256(f"{plan.digest} {testing_key}".encode()).hexdigest()[:32]
        identity = cls(plan, layout, run_id, f"{datetime.now(UTC):%Y-%m-%d}", testing_key)
        make_private(layout.confidential.path)
        content = {
            "release": plan.name,
            "plan_digest": plan.digest,
            "run_id": run_id,
            "seeded": identity.seeded,
            **({"unprotected": UNPROTECTED} if identity.unprotected else {}),
            "started": identity.started,
        }
        origin = {
            "config": str(plan.source),
            "ledger": str(ledger_path(plan).resolve()),
            "dataset": plan.settings.input.dataset,
            "framework": plan.currency,
            "inputs": [str(folder) for folder in input_folders(plan)],
        }
        write_atomically(layout.confidential.origin, json_bytes(origin))
        write_atomically(layout.run, json_bytes(content), mode=0o644)
        return identity

    @classmethod
    def _continue(cls, plan: Plan, layout: Layout, testing_key: str | None) -> RunIdentity:
        try:
            content = json.loads(read_within(layout.root, layout.run.name))
            content["plan_digest"], content["release"], content["seeded"], content["run_id"], content["started"]
        except (ValueError, KeyError, TypeError):
            damaged = Problem(
                str(layout.run), "is damaged", "restore it; without it the run in this folder cannot be identified"
            )
            raise UsageError(damaged) from None
        if content["plan_digest"] != plan.digest:
            other = f"holds another release ({content['release']}, plan {content['plan_digest'][:16]})"
            raise UsageError(Problem(str(layout.root), other, "name another folder with --out"))
        if content["seeded"] != (testing_key is not None):
            kind = "a test run with a testing key" if content["seeded"] else "a real run"
            raise UsageError(Problem(str(layout.root), f"holds {kind}", "continue it as such, or name another folder"))
        if testing_key is not None:
            expected = hashlib.sha256(f"{plan.digest} {testing_key}".encode()).hexdigest()[:32]
            if content["run_id"] != expected:
                raise UsageError(Problem(str(layout.root), "holds a test run with another testing key"))
        identity = cls(plan, layout, content["run_id"], str(content["started"])[:10], testing_key)
        if ("unprotected" in content) != identity.unprotected:
            reason = "holds a test run of data that were declared otherwise"
            raise UsageError(Problem(str(layout.root), reason, "name another folder with --out"))
        return identity

    @property
    def seeded(self) -> bool:
        """Whether the key comes from a testing key, which is not secret."""
        return self.testing_key is not None

    @property
    def unprotected(self) -> bool:
        """Whether it was drawn with such a key from data that need protection: then all that is written is private."""
        return is_unprotected(self.plan, self.testing_key, allowed=self.seeded)

    @contextmanager
    def no_key_after_refusal(self) -> Iterator[None]:
        """Destroy the key if the run is refused before it was charged; once charged, it may be continued."""
        try:
            yield
        except Interrupted:
            raise
        except ProblemsFound:
            if not self._may_be_charged():
                destroy_key(self.layout.confidential.key)
            raise

    def refuse_known_files(self, prints: list[dict[str, str]]) -> None:
        """Refuse files that were charged under another name, before a record of them is placed.

        The same people in other files are known by their totals, which :meth:`reserve` compares.
        """
        if not self.seeded:
            refuse_early(
                self.plan, run_id=self.run_id, run=self.layout.confidential.path, population=population_of(prints)
            )

    def reserve(self, prints: list[dict[str, str]], population: Population | None = None, *, how: str = "") -> None:
        """Make the key durable, then charge the ledger, then tell its witnesses; once, however often this is called.

        Parameters
        ----------
        prints : list of dict
            Name and sha256 of each input file as it was tabulated.
        population : Population, optional
            By which the same people are known under another name; without it, their files alone.
        how : str
            Digest of the settings by which the files were read. Read otherwise they are other data, and the same noise
            on both would reveal the difference; so a run that continues with another digest is refused.
        """
        ledger = Ledger.open(ledger_path(self.plan))
        charged = any(entry.run_id == self.run_id for entry in ledger.entries())
        key = self.layout.confidential.key
        if not key.exists():
            if charged and not self.seeded:
                raise BudgetError(
                    Problem(
                        str(key),
                        "the key of this unfinished run is gone, and new noise would be a second measurement",
                        "begin again in another folder; what this run was charged stays charged",
                    )
                )
            write_key(key, self._new_key())
        note = f"test run of {self.plan.name}, {UNPROTECTED}" if self.unprotected else f"release {self.plan.name}"
        # The manifest publishes the hash of this entry: without the salt, that would be a hash of the data.
        input_digest = commitment(digest_of({"files": digest_of_input(prints), "how": how}), self._salt())
        common = {"plan_digest": self.plan.digest, "input_digest": input_digest, "note": note}
        dataset = self.plan.settings.input.dataset
        if self.seeded:
            if not charged:
                common["input_digest"] = "not recorded: the salt of a test run is not secret"
                ledger.record_testing(dataset=dataset, framework=self.plan.currency, run_id=self.run_id, **common)
            return
        guard, people = guard_of(self.plan, self.layout.confidential.path), population or population_of(prints)
        ledger.reserve(
            dataset=dataset,
            framework=self.plan.currency,
            total=self.plan.dataset_budget,
            run_id=self.run_id,
            amount=self.plan.budget,
            admit=lambda posted: guard.admit(posted, dataset=dataset, run_id=self.run_id, population=people),
            **common,
        )
        # Noise is drawn only after this: a charge that no witness knows yet has spent nothing (`ledger.md`).
        guard.record(ledger, run_id=self.run_id, dataset=dataset, population=people)

    def commit_charge(self) -> None:
        """Once the measurements are durable: commit the charge, then destroy the key."""
        if committed(self.layout.release.mechanism(self.plan)) is None:
            raise UsageError(Problem(str(self.layout.root), "holds no measurements", "run `das measure` first"))
        if not self.seeded:
            ledger, guard = self._ledger(), guard_of(self.plan, self.layout.confidential.path)
            ledger.commit(self.run_id, admit=guard.check)
            if self.layout.confidential.key.exists():  # afterwards it was recorded
                guard.record(ledger)
        destroy_key(self.layout.confidential.key)

    def commitments(self, prints: list[dict[str, str]]) -> list[dict[str, str]]:
        """What may be published about the input: one hash of all files, under a salt that stays confidential.

        Not the files' names, nor how many there are: one file per village would name the villages with people.
        """
        named = ", ".join(self.plan.settings.input.files)
        return [{"name": named, "sha256_salted": commitment(digest_of_input(prints), self._salt())}]

    def record(self) -> RunRecord:
        """Read what the statement and the manifest publish about this run, from the ledger and the measurements."""
        measured = committed(self.layout.release.mechanism(self.plan))
        if measured is None:
            raise UsageError(Problem(str(self.layout.root), "holds no measurements", "run `das measure` first"))
        ledger = self._ledger()
        mine = [entry for entry in ledger.entries() if entry.run_id == self.run_id]
        if not mine:
            raise BudgetError(Problem(str(ledger.path), "has no entry for this run", "restore the ledger"))
        if self.seeded:
            # A test run is listed and not charged; it agrees if it was listed for this very plan.
            charged = self.plan.budget if mine[-1].plan_digest == self.plan.digest else Fraction(0)
            entry: dict[str, Any] = {"kind": "testing"}
        else:
            charged = mine[-1].amount
            # Its own hash, not the ledger's head, which would depend on the entries of other runs.
            entry = {"run_id": self.run_id, "kind": mine[-1].kind, "hash": mine[-1].hash}
            decided = [e for e in ledger.entries(mine[-1].dataset) if e.kind in DECISIONS and e.seq < mine[-1].seq]
            if decided:
                entry["decisions"] = [{"kind": e.kind, "day": e.time[:10], "reason": e.note} for e in decided]
        return RunRecord(
            seeded=self.seeded,
            unprotected=self.unprotected,
            charged=charged,
            ledger_entry=entry,
            inputs=measured["inputs"],
            started=NO_TIME if self.seeded else self.started,
        )

    def _may_be_charged(self) -> bool:
        """Whether the ledger has this run, or its facts, which are written after the charge, say that it had."""
        path = ledger_path(self.plan)
        if committed(self.layout.release.facts) is not None or not path.exists():
            return True
        try:
            return any(entry.run_id == self.run_id for entry in Ledger.open(path).entries())
        except BudgetError:
            return True  # it cannot be read: the key stays until somebody has restored it

    def _ledger(self) -> Ledger:
        """Open the ledger that holds this run; a missing ledger is an error, not a new ledger."""
        path = ledger_path(self.plan)
        if not path.exists():
            remedy = "restore it; a new one would forget what was spent"
            raise BudgetError(Problem(str(path), "the ledger is gone", remedy))
        return Ledger.open(path)

    def _new_key(self) -> RunKey:
        return RunKey.generate() if self.testing_key is None else RunKey.for_testing(self.testing_key)

    def _salt(self) -> bytes:
        path = self.layout.confidential.salt
        if not path.exists():
            salt = secrets.token_bytes(32) if self.testing_key is None else self._new_key().secret
            write_atomically(path, salt)
        return read_within(path.parent, path.name)


def _refuse_strangers(layout: Layout) -> None:
    """Refuse a folder that holds anything else than the input and what a run that was killed here may have left."""
    known = {layout.confidential.path, layout.log, *unfinished(layout.run)}
    if set(layout.root.iterdir()) - known:
        raise UsageError(
            Problem(str(layout.root), "is not empty and holds no run of das", "name a new folder with --out")
        )
