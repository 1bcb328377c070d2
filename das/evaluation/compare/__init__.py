"""``das compare``: compare methods on the example table, on the data of a config, or on those of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from das.errors import Problem, UsageError
from das.plan.load import load
from das.runner import Progress

__all__ = ["compare"]


def compare(
    source: Path | None,
    *,
    out: Path | None = None,
    epsilon: str | None = None,
    runs: int | None = None,
    options: Sequence[str] = (),
    progress: Progress | None = None,
) -> tuple[dict[str, Any], str]:
    """Compare raw noise, least squares and conditioned noise at one effective epsilon.

    Parameters
    ----------
    source : Path, optional
        A config of public or generated data; or the folder of a run, into whose confidential side alone
        the result is written. The example table unless given.
    out : Path, optional
        Where to write the page; not for a run.
    epsilon, runs
        The effective epsilon to which all are matched, and the number of draws of each.
    options, progress
        Options and progress callback of the runner.

    Returns
    -------
    tuple
        The result as plain data, and the same as text.
    """
    # Kernels are compiled when they are first loaded, so only what is asked for is loaded.
    if source is None:
        from das.evaluation.compare.example_table import compare_example, comparison_text
        from das.evaluation.compare.page import render_comparison

        found = compare_example(epsilon=epsilon or "1", runs=runs or 300)
        _write(out, render_comparison(found) if out else "")
        return found, comparison_text(found)
    from das.evaluation.compare.levels import compare_folder, compare_levels, levels_text
    from das.evaluation.compare.page import render_levels

    asked: dict[str, Any] = {"runs": runs or 5, "epsilon": epsilon, "options": options, "progress": progress}
    if source.is_dir():
        if out is not None:
            reason = (
                "a comparison of a run goes into its confidential folder: nothing protects distances from the truth"
            )
            raise UsageError(Problem("--out", reason, "leave it out"))
        found = compare_folder(source, **asked)
        return found, levels_text(found)
    plan = load(source)
    if plan.settings.input.data == "confidential":
        reason = "its data are confidential, and nothing protects distances from the truth"
        remedy = "compare a run by its folder, which keeps the result; or declare data that are public or generated"
        raise UsageError(Problem(str(source), reason, remedy))
    with TemporaryDirectory(prefix="das-compare-") as workdir:
        found = compare_levels(plan, workdir=Path(workdir), **asked)
    _write(out, render_levels(found) if out else "")
    return found, levels_text(found)


def _write(out: Path | None, page: str) -> None:
    if out is not None:
        out.write_text(page, encoding="utf-8")
