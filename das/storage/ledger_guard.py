"""The rules that join a ledger and its witnesses: what must agree before a charge, and what only a person decides.

The ledger must hold every entry that a reachable witness names. If it does not, it was deleted, replaced or put back
to an older copy, and it grants nothing. The people of a run must not have been charged under another name. `ledger.md`
has the order of durable writes, and the argument that a kill between them neither blocks a run nor grants anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from das.errors import BudgetError, Problem
from das.storage.files import make_private
from das.storage.ledger import Ledger
from das.storage.ledger_entries import Entry, LedgerEntries
from das.storage.population import Population
from das.storage.witness import Account, Checkpoint, Damaged, Witness, read_witnesses, write_copy

__all__ = ["LedgerGuard", "state_folder"]

_ACCEPT = "das ledger DIR --accept-loss --reason WHY"  # DIR: a run's folder, or the ledger's
_RESTORE = (
    f"restore the ledger's latest copy; if there is none, a person may record the loss: {_ACCEPT} (what the witness "
    "says was spent stays charged)"
)
_WITNESS_GONE = (
    f"copy it back from a backup, or from the confidential folder of a finished run; if there is none: {_ACCEPT}"
)


@dataclass(slots=True)
class _Copies:
    """The copies of one witness: the longest, and where each lies."""

    witness: Witness
    paths: list[Path]


@dataclass(slots=True)
class _Found:
    """What the witnesses say: the ledger's own, those that name missing entries, all of them, and what is wrong."""

    own: Witness | None = None
    lost: list[tuple[Witness, int]] = field(default_factory=list)  # with the number of lines that the ledger holds
    everyone: list[Witness] = field(default_factory=list)
    gone: bool = False
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LedgerGuard:
    """A ledger and the places of its witnesses: its own folder, the folder of the input, and the run's.

    Parameters
    ----------
    ledger : Path
        The ledger's file, resolved; it may be missing.
    inputs : tuple of Path
        Folders of the input files. A copy is written to the first, or to a folder of this user if that is read-only.
    run : Path, optional
        The confidential folder of the run.
    """

    ledger: Path
    inputs: tuple[Path, ...] = ()
    run: Path | None = None

    def check(self, posted: LedgerEntries) -> Witness | None:
        """Return the ledger's witness, if there is one yet.

        Raises
        ------
        BudgetError
            The ledger lacks an entry that a witness names, or a witness is damaged or gone.
        """
        found = self._examine(posted)
        if found.problems:
            raise BudgetError(found.problems)
        return found.own

    def refuse(
        self, posted: LedgerEntries, *, dataset: str, run_id: str, population: Population | None = None
    ) -> Witness | None:
        """Raise BudgetError if a run may not be charged; return the ledger's witness, if there is one yet."""
        found = self._examine(posted)
        problems = found.problems
        if run_id not in posted.runs and any(c.run_id == run_id for w in found.everyone for c in w.checkpoints):
            # Its key may have drawn noise already; without the entry nobody can say that it was for the same input.
            reason = f"the charge of run {run_id!r} was lost with entries of the ledger, so it cannot be continued"
            problems.append(Problem(str(self.ledger), reason, "begin again in another folder"))
        if population is not None and not problems:
            problems += self._same_people(posted, found, dataset, population)
        if problems:
            raise BudgetError(problems)
        return found.own

    def admit(self, posted: LedgerEntries, *, dataset: str, run_id: str, population: Population | None = None) -> str:
        """Under the ledger's lock, refuse or admit a run; return the mark of the ledger's witness.

        A witness that is not there yet is begun, and is durable before the entry that names it.
        """
        own = self.refuse(posted, dataset=dataset, run_id=run_id, population=population)
        if own is None:
            own = Witness.begin(self.ledger)
            self._write(own)
        return own.mark

    def record(
        self, ledger: Ledger, *, run_id: str = "", dataset: str = "", population: Population | None = None
    ) -> None:
        """Make a checkpoint of the ledger durable in every place; call it after a change, and before noise is drawn.

        The same checkpoint is not written twice, and copies that lag are completed.
        """
        with ledger.locked() as posted:
            own = self.check(posted) or Witness.begin(self.ledger)
            known = any(c.run_id == run_id and c.population for c in own.checkpoints)
            current = bool(own.checkpoints) and own.checkpoints[-1].head == posted.head
            if not current or (population is not None and not known):
                checkpoint = Checkpoint(
                    ledger=str(self.ledger),
                    seq=len(posted.entries),
                    head=posted.head,
                    accounts={
                        name: Account(account.framework, account.amount, posted.spent[name])
                        for name, account in posted.accounts.items()
                    },
                    run_id=run_id,
                    dataset=dataset,
                    population=population.fingerprint(own.salt) if population else None,
                )
                own = own.with_line(checkpoint)
            self._write(own)

    def losses(self, posted: LedgerEntries, *, dataset: str, reason: str) -> Iterator[Entry]:
        """Yield the entries by which a person accepts that entries, or all witnesses, are lost.

        What a witness says was spent since the last entry that both hold is charged again: nothing is forgotten, and
        more budget needs a raised total.
        """
        found = self._examine(posted)
        own = found.own or (found.lost[0][0] if found.lost else None)
        if own is None and found.gone:
            own = Witness.begin(self.ledger)
            self._write(own)
        if own is None:
            return
        opened = set(posted.accounts)
        for witness, held in found.lost:
            last, before = witness.checkpoints[-1], witness.checkpoints[held - 1].accounts if held else {}
            for name, account in last.accounts.items():
                spent = account.spent - (before[name].spent if name in before else 0)
                entry = Entry(
                    dataset=name,
                    framework=account.framework,
                    kind="lost",
                    amount=max(Fraction(0), spent),
                    time=_now(),
                    plan_digest=last.hash,
                    input_digest=own.mark,
                    note=reason,
                )
                if name not in opened:
                    opened.add(name)
                    yield replace(entry, kind="open", amount=account.total, plan_digest="", note="")
                yield entry
        if found.gone and not found.lost:
            account_of = posted.accounts.get(dataset) or next(iter(posted.accounts.values()))
            yield replace(
                account_of,
                kind="lost",
                amount=Fraction(0),
                time=_now(),
                plan_digest=posted.witness,
                input_digest=own.mark,
                note=reason,
            )

    def places(self, posted: LedgerEntries) -> list[str]:
        """Say where witnesses of the ledger lie, and whether they agree with it."""
        found = self._examine(posted)
        mine = {witness.id for witness in ([found.own] if found.own else []) + [lost for lost, _ in found.lost]}
        lines = []
        for path, content in self._read():
            if isinstance(content, Witness) and content.id in mine:
                state = "does not agree" if found.problems else "agrees"
                lines.append(f"{path} ({len(content.checkpoints)} checkpoints, {state})")
            elif not isinstance(content, Witness):
                lines.append(f"{path} ({content or 'closed to this user'})")
        return lines

    def _examine(self, posted: LedgerEntries) -> _Found:
        found, groups = _Found(), self._groups()
        found.problems += groups[1]
        marks = {entry.input_digest for entry in posted.entries if entry.kind in ("open", "lost")} - {""}
        for copies in groups[0]:
            witness = copies.witness
            found.everyone.append(witness)
            holds = [_holds(posted, each) for each in witness.checkpoints]
            if not (witness.mark in marks or self._was_here(copies) or any(holds)):
                continue  # of another ledger
            excused = {entry.plan_digest for entry in posted.decisions if entry.kind == "lost"}
            first = max((i + 1 for i, each in enumerate(witness.checkpoints) if each.hash in excused), default=0)
            if not all(holds[first:]):
                held = first + holds[first:].index(False)
                found.lost.append((witness, held))
                found.problems.append(self._lacks(copies, held, posted))
            elif witness.mark == posted.witness or (not posted.witness and found.own is None):
                found.own = witness
        found.gone = bool(posted.witness) and all(each.mark != posted.witness for each in found.everyone)
        if found.gone:
            reason = "every witness of this ledger is gone or closed to you, so entries may be missing unseen"
            found.problems.append(Problem(str(self.ledger), reason, _WITNESS_GONE))
        return found

    def _groups(self) -> tuple[list[_Copies], list[Problem]]:
        """Gather the copies of each witness; copies that contradict each other are a problem."""
        by_id: dict[str, _Copies] = {}
        problems = []
        for path, content in self._read():
            if isinstance(content, Damaged):
                remedy = f"restore it from a copy in another place; if there is none, delete it, then: {_ACCEPT}"
                problems.append(Problem(str(path), f"this witness of a ledger is damaged: {content}", remedy))
            elif content is not None:
                copies = by_id.setdefault(content.id, _Copies(content, []))
                if content.continues(copies.witness):
                    copies.witness = content
                elif not copies.witness.continues(content):
                    reason = f"this witness of a ledger contradicts its copy {copies.paths[0]}"
                    problems.append(Problem(str(path), reason, "find out which was altered, and restore it"))
                copies.paths.append(path)
        return list(by_id.values()), problems

    def _read(self) -> list[tuple[Path, Witness | Damaged | None]]:
        folders = [self.ledger.parent, *self.inputs, *([self.run] if self.run else []), state_folder()]
        return [found for folder in dict.fromkeys(folders) for found in read_witnesses(folder)]

    def _was_here(self, copies: _Copies) -> bool:
        """Whether the witness is of a ledger in this place, or in this folder before the folder was moved."""
        there = Path(copies.witness.ledger)
        beside = any(path.parent == self.ledger.parent for path in copies.paths)
        return there == self.ledger or (beside and there.name == self.ledger.name and not there.exists())

    def _lacks(self, copies: _Copies, held: int, posted: LedgerEntries) -> Problem:
        seq = copies.witness.checkpoints[held].seq
        what = "the ledger is gone" if not posted.entries else f"entry {seq} of the ledger is gone"
        how = "it was deleted or replaced" if not held else "it was cut short, or put back to an older copy"
        return Problem(str(self.ledger), f"{what}, which the witness {copies.paths[0]} names: {how}", _RESTORE)

    def _same_people(
        self, posted: LedgerEntries, found: _Found, dataset: str, population: Population
    ) -> Iterator[Problem]:
        distinct = {e.plan_digest for e in posted.decisions if e.kind == "distinct" and e.dataset == dataset}
        for witness in found.everyone:
            own = found.own is not None and witness.id == found.own.id
            mine = population.fingerprint(witness.salt)
            named: set[str] = set()
            for each in witness.checkpoints:
                name = f"{each.dataset}@{witness.id[:8]}"
                if each.population is None or name in distinct | named or (own and each.dataset == dataset):
                    continue
                if own and each.run_id in posted.runs and posted.runs[each.run_id].kind == "release":
                    continue  # it drew nothing
                if mine.same_people(each.population):
                    named.add(name)
                    elsewhere = "" if own else f" in the ledger {witness.ledger}"
                    use = f'dataset = "{each.dataset}"' + ("" if own else f' and ledger = "{witness.ledger}"')
                    yield Problem(
                        str(self.ledger),
                        f"data set {dataset!r} holds the people of data set {each.dataset!r}{elsewhere}, to which run "
                        f"{each.run_id!r} was charged: a second name would be a second budget",
                        f"under [input], set {use}; if they are other people, a person may record it: das ledger DIR "
                        f"--distinct-from {name} --reason WHY (DIR: a run's folder; or the ledger's, with --dataset "
                        f"{dataset!r})",
                    )

    def _write(self, witness: Witness) -> None:
        """Complete the copy in every place; the ledger's own folder first."""
        folders = [self.ledger.parent]
        if self.inputs and _can_write(self.inputs[0]):
            folders.append(self.inputs[0])
        elif self.inputs:
            state = state_folder()
            state.parent.mkdir(parents=True, exist_ok=True)
            make_private(state)
            folders.append(state)
        if self.run:
            folders.append(self.run)
        for folder in dict.fromkeys(folders):
            write_copy(witness, folder)


def state_folder() -> Path:
    """Where this user's programs keep state; a witness lies here if the folder of the input is read-only."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "das"


def _can_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _holds(posted: LedgerEntries, each: Checkpoint) -> bool:
    return 0 < each.seq <= len(posted.entries) and posted.entries[each.seq - 1].hash == each.head


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
