"""Run identity: the run's id, its noise key, and its charge in the ledger.

The order of the steps is what protects. The key is durable before the ledger is charged, the ledger is charged before
anything is drawn, the measurements are durable before the charge is committed, and only then is the key destroyed. A
run killed at any point finds its key again and draws the same noise; a run that lost its key draws nothing.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from itertools import takewhile
from pathlib import Path
from typing import Any

from das.errors import BudgetError, Problem, UsageError
from das.exact import digest_of_input
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
from das.storage.layout import Layout
from das.storage.ledger import Ledger
from das.storage.staging import committed

__all__ = ["RunIdentity", "RunRecord", "ledger_path"]

NO_TIME = None
"""A test run keeps no times, so that two of them are the same, byte by byte."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the statement and the manifest publish about the run."""

    seeded: bool
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
    def claim(cls, plan: Plan, layout: Layout, testing_key: str | None) -> RunIdentity:
        """Begin a run of this plan in the folder, or continue the one that is there; refuse any other."""
        identity = (cls._continue if layout.run.exists() else cls._begin)(plan, layout, testing_key)
        make_public(layout.release.path)
        return identity

    @classmethod
    def _begin(cls, plan: Plan, layout: Layout, testing_key: str | None) -> RunIdentity:
        # The confidential folder may exist already, with the input in it; so may files of a run that was killed here.
        left = unfinished(layout.run)
        if set(layout.root.iterdir()) - {layout.confidential.path, *left}:
            raise UsageError(
                Problem(str(layout.root), "is not empty and holds no run of das", "name a new folder with --out")
            )
        for path in left:
            path.unlink()
        for path in (layout.confidential.key, layout.confidential.salt):
            secure_delete(
                path
            )  # of an abandoned run: a new run needs a key of its own, or it would draw the same noise
        if testing_key is None:
            run_id = secrets.token_hex(16)
        else:
            run_id = hashlib.sha256(f"{plan.digest} {testing_key}".encode()).hexdigest()[:32]
        identity = cls(plan, layout, run_id, _now(), testing_key)
        make_private(layout.confidential.path)
        content = {
            "release": plan.name,
            "plan_digest": plan.digest,
            "run_id": run_id,
            "seeded": identity.seeded,
            "started": identity.started,
        }
        origin = {
            "config": str(plan.source),
            "ledger": str(ledger_path(plan).resolve()),
            "dataset": plan.settings.input.dataset,
        }
        write_atomically(layout.confidential.origin, json_bytes(origin))
        write_atomically(layout.run, json_bytes(content), mode=0o644)
        return identity

    @classmethod
    def _continue(cls, plan: Plan, layout: Layout, testing_key: str | None) -> RunIdentity:
        try:
            content = json.loads(layout.run.read_bytes())
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
        return cls(plan, layout, content["run_id"], content["started"], testing_key)

    @property
    def seeded(self) -> bool:
        """Whether the key comes from a testing key, which is not secret."""
        return self.testing_key is not None

    def reserve(self, prints: list[dict[str, str]]) -> None:
        """Make the key durable, then charge the ledger; both once, however often this is called.

        Parameters
        ----------
        prints : list of dict
            Name and sha256 of each input file as it was tabulated.
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
            write_atomically(key, self._new_key().secret)
        note = f"release {self.plan.name}"
        # The manifest publishes the hash of this entry: without the salt, that would be a hash of the data.
        input_digest = commitment(digest_of_input(prints), self._salt())
        common = {"plan_digest": self.plan.digest, "input_digest": input_digest, "note": note}
        dataset = self.plan.settings.input.dataset
        if self.seeded:
            if not charged:
                common["input_digest"] = "not recorded: the salt of a test run is not secret"
                ledger.record_testing(dataset=dataset, framework=self.plan.currency, run_id=self.run_id, **common)
            return
        ledger.reserve(
            dataset=dataset,
            framework=self.plan.currency,
            total=self.plan.dataset_budget,
            run_id=self.run_id,
            amount=self.plan.budget,
            **common,
        )

    def commit_charge(self) -> None:
        """Once the measurements are durable: commit the charge, then destroy the key."""
        if committed(self.layout.release.mechanism(self.plan)) is None:
            raise UsageError(Problem(str(self.layout.root), "holds no measurements", "run `das measure` first"))
        if not self.seeded:
            self._ledger().commit(self.run_id)
        for path in (self.layout.confidential.key, *unfinished(self.layout.confidential.key)):
            secure_delete(path)

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
        return RunRecord(
            seeded=self.seeded,
            charged=charged,
            ledger_entry=entry,
            inputs=measured["inputs"],
            started=NO_TIME if self.seeded else self.started,
        )

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
        return path.read_bytes()


def ledger_path(plan: Plan) -> Path:
    """The ledger's file: as configured, or beside the first input."""
    if plan.settings.input.ledger:
        return plan.folder / plan.settings.input.ledger
    folder = takewhile(lambda name: not set(name) & set("*?["), Path(plan.settings.input.files[0]).parent.parts)
    return plan.folder.joinpath(*folder, "ledger.sqlite")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
