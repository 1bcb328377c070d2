"""The sparse-cell prior moves counts, and nothing else: not measurements, not linear estimates."""

from __future__ import annotations

from pathlib import Path

import das
from das.demo.starter import write_demo
from das.plan.load import load


def release(out: Path, prior: str) -> Path:
    config = write_demo(out, blocks=120, people=3_000)
    text = config.read_text()
    if "[estimate]" in text:
        text = text.replace("[estimate]", f'[estimate]\nprior = "{prior}"')
    else:
        text += f'\n[estimate]\nprior = "{prior}"\n'
    config.write_text(text)
    das.run(load(config), out=out, testing_key="priors")
    return out / "release"


def test_priors_move_counts_alone(tmp_path: Path) -> None:
    with_any, without = release(tmp_path / "sharing", "sharing"), release(tmp_path / "none", "none")

    def same(folder: str) -> bool:
        files = [path.relative_to(with_any) for path in sorted((with_any / folder).rglob("*.parquet"))]
        assert files
        return all((with_any / file).read_bytes() == (without / file).read_bytes() for file in files)

    assert same("measurements")
    assert same("estimates")
    assert not same("counts")
