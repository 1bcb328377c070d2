"""What a newcomer adds, and where: a mechanism, a policy, an output format and a runner are one entry each."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import das
from das.accounting.events import UnknownEvent
from das.accounting.moves import unconstrained_moves
from das.accounting.policies import POLICIES, PolicyEntry
from das.demo.starter import write_starter
from das.errors import BudgetError, ConfigError
from das.noise import mechanisms
from das.noise.interval_arithmetic import Weights
from das.noise.mechanisms import MECHANISMS, column_of, mechanism_of
from das.noise.stream import Bits
from das.noise.two_sided import TwoSidedNoise
from das.plan.for_accountant import hierarchical_plan
from das.plan.load import load
from das.promise.account import account
from das.promise.statement import statement_of
from das.release.audit import measured_events
from das.release.formats import FORMATS, Format, Style
from das.release.measurements import table_of_measurements
from das.report.privacy import render_privacy
from das.runner import find_runner
from das.schema.counts import ProtectedCounts
from das.storage.counts import table_of_counts, with_noise_stated
from das.storage.layout import ReleaseFolder

if TYPE_CHECKING:
    from conftest import Country


@dataclass(frozen=True, slots=True, init=False)
class Mixed(TwoSidedNoise):
    """A third, made-up mechanism: P(k) ~ exp(-(k^2 + |k|) / width); the accountant has no theorem for it."""

    column: ClassVar[str] = "width"
    continuous_error: ClassVar[float] = 0.75

    width: Fraction
    weights: Weights = field(init=False, repr=False, compare=False)

    def __init__(self, width: Fraction | int) -> None:
        object.__setattr__(self, "width", Fraction(width))
        object.__setattr__(self, "weights", Weights(quadratic=1 / self.width, linear=1 / self.width))

    @classmethod
    def spending(cls, cost: Fraction, *, l1: int, l2_squared: int) -> Mixed:
        return cls(l2_squared / cost)

    @property
    def parameter(self) -> Fraction:
        return self.width

    def event(self, level: str, query: str) -> UnknownEvent:
        return UnknownEvent(level=level, query=query, description=f"mixed noise of width {self.width}")

    @property
    def name(self) -> str:
        return f"mixed(width={self.width})"

    def variance(self) -> float:
        k = np.arange(-200, 201)
        return float((k**2 * np.exp(self.log_pmf(k))).sum())

    def draw_one_by_reference(self, bits: Bits) -> int:
        raise AssertionError("its table serves")


def with_noise(plan: das.plan.plan.Plan, noise: TwoSidedNoise) -> das.plan.plan.Plan:
    return replace(plan, measurements=tuple(replace(m, mechanism=noise) for m in plan.measurements))


def test_an_unknown_mechanism_raises_in_every_place(country: Country, tmp_path: Path) -> None:
    plan = with_noise(country.plan(), Mixed(9))
    codes = country.spine().geocodes("state")
    values = np.zeros((len(codes), sum(m.query.size for m in plan.at("state"))), dtype=np.int64)
    with pytest.raises(ConfigError, match="Mixed: is not a known mechanism"):
        column_of([Mixed(9)])
    with pytest.raises(ConfigError, match="width: is not the parameter of a known mechanism"):
        mechanism_of("width", "9")
    with pytest.raises(ConfigError, match="is not a known mechanism"):
        table_of_measurements(plan, "state", codes, values)
    counts = table_of_counts(plan.schema, codes, ProtectedCounts.nobody())
    with pytest.raises(ConfigError, match="is not a known mechanism"):
        with_noise_stated(counts, plan.at("state"))
    folder = ReleaseFolder(tmp_path)
    folder.measurements.mkdir()
    for level in plan.levels:
        pq.write_table(pa.table({"query": ["total"], "width": ["9"]}), folder.measurements / f"{level}.parquet")
    with pytest.raises(BudgetError, match="states no parameter of a known mechanism"):
        measured_events(plan, folder)
    # It states its own event, and the accountant has no theorem for it: never a number.
    found = account(plan, country.spine()).sections
    assert {row["status"] for row in (*found["effective"], *found["secrets"])} == {"not supported"}
    assert {row["epsilon"] for row in found["effective"]} == {None}


def test_a_mechanism_without_an_event_cannot_be_made() -> None:
    class Silent(TwoSidedNoise):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Silent()  # type: ignore[abstract]


def test_a_mechanism_is_one_entry(country: Country, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, "width", Mixed)
    monkeypatch.setitem(mechanisms.FRAMEWORKS, "zcdp", Mixed)
    plan, spine = country.plan(), country.spine()
    assert {type(m.mechanism) for m in plan.measurements} == {Mixed}
    folder = ReleaseFolder(tmp_path)
    folder.measurements.mkdir()
    for level in plan.levels:
        codes = spine.geocodes(level)
        values = np.zeros((len(codes), sum(m.query.size for m in plan.at(level))), dtype=np.int64)
        pq.write_table(table_of_measurements(plan, level, codes, values), folder.measurements / f"{level}.parquet")
    assert "width" in pq.read_schema(folder.measurements / "state.parquet").names
    assert measured_events(plan, folder) == list(hierarchical_plan(plan, spine).events)


def test_a_policy_is_one_entry(country: Country, monkeypatch: pytest.MonkeyPatch) -> None:
    anybody = PolicyEntry(
        title="Effective, anybody",
        meaning="Anybody may be anywhere.",
        of_hierarchy=lambda plan: (tuple(unconstrained_moves(plan)), None),
        of_table=POLICIES["unconstrained"].of_table,
    )
    monkeypatch.setitem(POLICIES, "anybody", anybody)
    plan, spine = country.plan(), country.spine()
    found = account(plan, spine)
    assert [row["policy"] for row in found.sections["effective"]][-1] == "anybody"
    assert found.sections["effective"][-1]["epsilon"] == pytest.approx(found.nominal["epsilon"])
    statement = statement_of(plan, found, facts_digest=64 * "0", charged=plan.budget, seeded=False)
    page = render_privacy(statement, plan.to_json())
    assert "Effective, anybody" in page
    assert "Anybody may be anywhere." in page


class JsonLines:
    """A row a line."""

    def __init__(self, file: BinaryIO, _style: Style) -> None:
        self.file = file

    def write(self, piece: pa.Table) -> None:
        self.file.writelines(json.dumps(row).encode() + b"\n" for row in piece.to_pylist())

    def close(self) -> None:
        self.file.write(b"\n")


@pytest.mark.usefixtures("unconfined")  # the entry is made in this process alone
def test_an_output_format_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "lines", Format(ending="jsonl", open=JsonLines, is_wanted=lambda settings: True))
    config = write_starter(tmp_path / "country")
    release = das.run(load(config), out=tmp_path / "out", testing_key="formats")
    tables = release.folder.path / "tables"
    names = {path.stem for path in tables.glob("*.parquet")}
    assert names == {path.stem for path in tables.glob("*.jsonl")} == {path.stem for path in tables.glob("*.csv")}
    name = sorted(names)[0]
    rows = [json.loads(line) for line in (tables / f"{name}.jsonl").read_text().splitlines() if line]
    assert rows == pq.read_table(tables / f"{name}.parquet").to_pylist()
    assert "microdata/records.jsonl" in release.manifest["outputs"]


class Recording:
    """A runner that does nothing but note what it was asked."""

    asked: ClassVar[list[str]] = []

    def run(self, plan: das.plan.plan.Plan, out: Path, **_: object) -> None:
        self.asked.append(plan.name)


def test_a_runner_is_one_entry(country: Country, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint(name="recording", value=f"{__name__}:Recording", group="das.runner")
    monkeypatch.setattr(EntryPoint, "load", lambda self: Recording)
    monkeypatch.setattr("das.runner.entry_points", lambda group, name: [entry] if name == entry.name else [])
    find_runner("recording").run(country.plan(), tmp_path)
    assert Recording.asked == ["tiny"]
