"""The sparse-cell prior changes the counts, and neither the measurements nor the linear estimates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from das.demo.starter import write_demo
from das.plan.load import load
from das.runner import find_runner

if TYPE_CHECKING:
    from conftest import World


@pytest.mark.slow
def test_priors_move_counts_alone(town: World, tmp_path: Path) -> None:
    """The town was released without a prior, the default; the same demo, with the same key, with the sharing prior."""
    assert town.plan.settings.estimate.prior == "none"
    config = write_demo(tmp_path / "sharing", blocks=60, people=800)
    config.write_text(f'{config.read_text()}\n[estimate]\nprior = "sharing"\n')
    plan = load(config)
    assert "2 people in one block lose 0.48" in plan.explain()
    assert "prior:" not in town.plan.explain()
    find_runner().run(plan, tmp_path / "sharing", upto="estimate", testing_key="town")
    shared = tmp_path / "sharing" / "release"

    def same(folder: str) -> bool:
        files = [path.relative_to(town.release) for path in sorted((town.release / folder).rglob("*.parquet"))]
        assert files
        return all((town.release / file).read_bytes() == (shared / file).read_bytes() for file in files)

    assert same("measurements")
    assert same("estimates")
    assert not same("counts")
