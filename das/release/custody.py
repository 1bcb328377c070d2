"""Who answers for a run: its identity, its key, and what it was charged.

The order is the protection. The key is durable before the ledger is charged, the ledger is charged before anything is
drawn, the measurements are durable before the ledger's entry is settled, and only then is the key destroyed. A run
killed at any point finds its key again and draws the same noise; a run that lost its key draws nothing.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from das.errors import BudgetError, Problem, UsageError
from das.noise.stream import RunKey
from das.plan import Plan
from das.records import input_files
from das.release.durable import committed, forget, make_private, make_public, write_atomically
from das.release.layout import Layout
from das.release.ledger import Ledger
from das.release.manifest import commitment, json_bytes

__all__ = ["Custody", "RunRecord", "ledger_path"]

CLOCKLESS = None
"""A test run keeps no times, so that two of them are the same, byte by byte."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the statement and the manifest say of the run."""

    seeded: bool
    charged: Fraction
    ledger_entry: dict[str, Any]
    inputs: list[dict[str, str]]
    started: str | None


@dataclass(frozen=True)
class Custody:
    """The identity of one run in one folder."""

    plan: Plan
    layout: Layout
    run_id: str
    started: str
    testing_key: str | None

    @classmethod
    def claim(cls, plan: Plan, layout: Layout, testing_key: str | None) -> Custody:
        """Take the folder for this plan, or recognise the run that already has it."""
        if layout.run.exists():
            return cls._recognise(plan, layout, testing_key)
        # The confidential side may be there already, with the input in it; nothing else may.
        foreign = layout.root.exists() and not layout.root.is_dir()
        foreign = foreign or any(entry != layout.confidential.path for entry in _entries(layout.root))
        if foreign:
            raise UsageError(
                Problem(str(layout.root), "is not empty and holds no run of das", "name a new folder with --out")
            )
        layout.root.mkdir(parents=True, exist_ok=True)
        if testing_key is None:
            run_id = secrets.token_hex(16)
        else:
            run_id = hashlib.sha256(f"{plan.digest} {testing_key}".encode()).hexdigest()[:32]
        custody = cls(plan, layout, run_id, _now(), testing_key)
        make_private(layout.confidential.path)
        make_public(layout.release.path)
        content = {
            "release": plan.name,
            "plan_digest": plan.digest,
            "run_id": run_id,
            "seeded": custody.seeded,
            "started": custody.started,
        }
        whereabouts = {"config": str(plan.source), "ledger": str(ledger_path(plan).resolve())}
        write_atomically(layout.confidential.whereabouts, json_bytes(whereabouts))
        write_atomically(layout.run, json_bytes(content), mode=0o644)
        return custody

    @classmethod
    def _recognise(cls, plan: Plan, layout: Layout, testing_key: str | None) -> Custody:
        content = json.loads(layout.run.read_bytes())
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
        """Whether the key comes from a text that somebody knows."""
        return self.testing_key is not None

    def reserve(self, input_digest: str) -> None:
        """Make the key durable, then charge the ledger; both once, however often this is called."""
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
        common = {"plan_digest": self.plan.digest, "input_digest": input_digest, "note": note}
        dataset = self.plan.settings.input.dataset
        if self.seeded:
            if not charged:
                ledger.record_testing(dataset=dataset, framework=self.plan.framework, run_id=self.run_id, **common)
            return
        ledger.reserve(
            dataset=dataset,
            framework=self.plan.framework,
            total=self.plan.dataset_budget,
            run_id=self.run_id,
            amount=self.plan.budget,
            **common,
        )

    def settle(self) -> None:
        """The measurements are durable: settle the charge, then destroy the key."""
        if committed(self.layout.release.measurements) is None:
            raise UsageError(Problem(str(self.layout.root), "holds no measurements", "run `das measure` first"))
        if not self.seeded:
            Ledger.open(ledger_path(self.plan)).commit(self.run_id)
        forget(self.layout.confidential.key)

    def record(self) -> RunRecord:
        """What the ledger and the inputs say of this run, for the statement and the manifest."""
        ledger = Ledger.open(ledger_path(self.plan))
        mine = [entry for entry in ledger.entries() if entry.run_id == self.run_id]
        if not mine:
            raise BudgetError(Problem(str(ledger_path(self.plan)), "has no entry for this run", "restore the ledger"))
        salt = self._salt()
        inputs = [{"name": path.name, "sha256_salted": commitment(path, salt)} for path in input_files(self.plan)]
        if self.seeded:
            # A test run is listed and not charged; it agrees if it was listed for this very plan.
            charged = self.plan.budget if mine[-1].plan_digest == self.plan.digest else Fraction(0)
            entry: dict[str, Any] = {"kind": "testing"}
        else:
            charged = mine[-1].amount
            entry = {"run_id": self.run_id, "kind": mine[-1].kind, "head": ledger.head}
        return RunRecord(
            seeded=self.seeded,
            charged=charged,
            ledger_entry=entry,
            inputs=inputs,
            started=CLOCKLESS if self.seeded else self.started,
        )

    def _new_key(self) -> RunKey:
        return RunKey.generate() if self.testing_key is None else RunKey.for_testing(self.testing_key)

    def _salt(self) -> bytes:
        path = self.layout.confidential.path / "commitment.salt"
        if not path.exists():
            salt = secrets.token_bytes(32) if self.testing_key is None else self._new_key().secret
            write_atomically(path, salt)
        return path.read_bytes()


def ledger_path(plan: Plan) -> Path:
    """Where spending on this data set is recorded: as configured, or beside the first input file."""
    named = plan.settings.input.ledger
    return plan.folder / named if named else input_files(plan)[0].parent / "ledger.sqlite"


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
