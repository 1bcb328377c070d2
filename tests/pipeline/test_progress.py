"""Progress: what workers count reaches the driver, whoever they are, and results are not listed for it."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

import das
from pipelines.workers import progress
from pipelines.workers.progress import note_step, watch_progress


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every count is written when it is made, and read soon."""
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)


def counters(partial: Path) -> progress._Reader:
    folder = partial / "_scratch" / "progress"
    folder.mkdir(parents=True, exist_ok=True)
    return progress._Reader([folder])


def work(partial: Path, step: str, times: int) -> None:
    for _ in range(times):
        note_step(partial, step)


def test_counts_of_several_processes_add_up(tmp_path: Path) -> None:
    reader = counters(tmp_path)
    work(tmp_path, "measure block", 2)
    reader.look()
    assert reader.calls == {"measure block": 2}
    others = [
        multiprocessing.get_context("fork").Process(target=work, args=(tmp_path, step, 3))
        for step in ("measure block", "measure tract")
    ]
    for other in others:
        other.start()
        other.join()
    work(tmp_path, "measure tract", 1)
    reader.look()
    assert reader.calls == {"measure block": 5, "measure tract": 4}
    assert len(list((tmp_path / "_scratch" / "progress").iterdir())) == 3  # one for each process
    reader.look()
    assert reader.calls == {"measure block": 5, "measure tract": 4}


def test_a_line_that_is_not_complete_is_read_later(tmp_path: Path) -> None:
    reader = counters(tmp_path)
    path = tmp_path / "_scratch" / "progress" / "one"
    path.write_text("1 measure block\n1 meas")
    reader.look()
    assert reader.calls == {"measure block": 1}
    path.write_text("1 measure block\n1 measure tract\n")
    reader.look()
    assert reader.calls == {"measure block": 1, "measure tract": 1}


def test_a_step_that_nobody_watches_does_not_fail(tmp_path: Path) -> None:
    note_step(tmp_path / "gone", "measure block")


def test_shards_are_in_proportion_to_the_steps(tmp_path: Path) -> None:
    """Two steps of four elements for six shards; an element that is done twice counts once; others do not count."""
    reported: list[int] = []
    with watch_progress((tmp_path,), {"pool block": 4, "write block": 4}, 6, reported.append):
        work(tmp_path, "pool block", 9)
        work(tmp_path, "send down to block", 5)
        while 3 not in reported:
            pass
        assert max(reported) == 3
    assert reported[0] == 0
    assert reported[-1] == 6
    assert not (tmp_path / "_scratch" / "progress").exists()


@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("--runner=multi-process", "--direct_num_workers=2"), marks=pytest.mark.slow)],
    ids=["in-memory", "multi-process"],
)
def test_every_stage_tells_how_far_it_is(
    starter: Path, tmp_path: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: set[str] = set()
    look = progress._Reader.look

    def and_keep(reader: progress._Reader) -> None:
        look(reader)
        counted.update(reader.calls)

    monkeypatch.setattr(progress._Reader, "look", and_keep)
    told: dict[str, list[tuple[int, int]]] = {}
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.01)
    das.runner.find_runner().run(
        das.load(starter),
        tmp_path / "out",
        testing_key="a",
        options=options,
        progress=lambda stage, done, of: told.setdefault(stage, []).append((done, of)),
    )
    assert list(told) == ["tabulate", "measure", "estimate", "publish", "report"]
    for steps in told.values():
        assert steps[0][0] == 0
        assert steps[-1][0] == steps[-1][1]
        assert sorted(steps) == steps
    assert any(step.startswith(("place records", "write", "measure")) for step in counted)
