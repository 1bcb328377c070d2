"""Workload errors of several methods on one file that needs no protection: a table and a page with bars.

Errors compare with the truth and have no noise, so data that are declared confidential are refused.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from das.errors import ConfigError, Problem, ProblemsFound
from das.noise import RunKey
from das.report.charts import Bar, bar_chart
from das.synthesis.curator import Curator, Records
from das.synthesis.domain import Constraints
from das.synthesis.methods import METHODS, synthesise
from das.synthesis.release import amount_of, encoded
from das.synthesis.settings import read_settings

__all__ = ["compare_methods", "comparison_page", "comparison_text", "errors_of"]

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}"
    "svg{width:100%;font:14px system-ui,sans-serif}.bar{fill:#3a6ea5}.axis{stroke:#888}.open{fill:#ccc}"
)


def compare_methods(config: Path, *, runs: int = 3) -> dict[str, Any]:
    """Run every method that the config's budget and columns allow, and measure its errors on the file.

    Raises
    ------
    ConfigError
        The data are confidential: an error against the truth would reveal them.
    """
    settings = read_settings(config)
    if settings.input.data == "confidential":
        reason = "an error against the truth has no noise, and these data are confidential"
        remedy = 'compare on generated or public data, and say so: data = "generated"'
        raise ConfigError(Problem("input.data", reason, remedy))
    labels, codes = encoded(settings, config.resolve().parent / settings.input.file)
    domain, constraints = settings.domain(labels), settings.constraints(labels)
    records = Records(domain, codes)
    rows, left_out = [], {}
    for name, method in METHODS.items():
        try:
            budget = amount_of(settings, method.framework)
            measured = []
            for run in range(runs):
                curator = Curator(
                    records,
                    RunKey.for_testing(f"compare {run}").streams(name.encode()),
                    framework=method.framework,
                    budget=budget,
                    neighbours=settings.privacy.neighbours,
                )
                measured.append(_measured(name, curator, constraints, settings.privacy.records, records))
        except ProblemsFound as error:
            left_out[name] = f"{error.problems[0].where}: {error.problems[0].reason}"
            continue
        rows.append({"method": name} | {key: median(each[key] for each in measured) for key in measured[0]})
    return {"runs": runs, "records": len(records), "methods": rows, "left_out": left_out}


def errors_of(records: Records, found: Records | Any, size: int) -> float:
    """Return the mean over all marginals of so many attributes of their L1 distance over n."""
    sets = records.domain.subsets(min(size, len(records.domain.names)))
    return float(np.mean([_distance(records, found, each) for each in sets]))


def comparison_text(found: dict[str, Any]) -> str:
    """Return the comparison as lines for a terminal."""
    lines = [f"{'method':<12}{'pairs':>9}{'triples':>9}{'rows':>9}{'seconds':>9}"]
    for row in found["methods"]:
        lines.append(
            f"{row['method']:<12}{row['pairs']:>9.4f}{row['triples']:>9.4f}{row['rows']:>9.4f}{row['seconds']:>9.1f}"
        )
    lines += [f"{name:<12}left out: {reason}" for name, reason in found["left_out"].items()]
    runs = found["runs"]
    return "\n".join([*lines, f"mean L1 distance over n; median of {runs} runs; rows: triples of synthetic rows"])


def comparison_page(found: dict[str, Any], title: str) -> str:
    """Return the comparison as one page that needs no other file."""
    charts = Markup()
    for key, what in (("triples", "Triples of attributes, model"), ("rows", "Triples of attributes, synthetic rows")):
        bars = [Bar(row["method"], row[key], f"{row[key]:.4f}", "nominal") for row in found["methods"]]
        charts += Markup("<h2>{}</h2>").format(what) + bar_chart(key, what, bars)
    table = Markup("<pre>{}</pre>").format(comparison_text(found))
    head = Markup(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>{0}</title><style>{1}</style><h1>{0}</h1>'
    )
    note = "Mean over marginals of the L1 distance to the file, over the number of records. Shorter is better."
    return str(head.format(escape(title), Markup(STYLE)) + Markup("<p>{}</p>").format(note) + charts + table) + "\n"


def _measured(
    name: str, curator: Curator, constraints: Constraints, total: int | None, records: Records
) -> dict[str, float]:
    begun = process_time()
    model = synthesise(name, curator, constraints, total=total).model
    rows = Records(records.domain, model.rows(len(records), np.random.default_rng(1)))
    seconds = process_time() - begun
    return {
        "pairs": errors_of(records, model, 2),
        "triples": errors_of(records, model, 3),
        "rows": errors_of(records, rows, 3),
        "seconds": seconds,
    }


def _distance(records: Records, found: Records | Any, attributes: tuple[str, ...]) -> float:
    counts: NDArray[Any] = found.counts(attributes) if isinstance(found, Records) else found.marginal(attributes)
    return float(np.abs(counts - records.counts(attributes)).sum() / len(records))
