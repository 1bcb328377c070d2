"""Gong's regression example as one page: confidence regions at epsilon 0.5, 0.2 and 0.1, naive against corrected.

True counts x ~ Poisson(10), y = -5 + 4 x + N(0, 25), Laplace noise of scale 1/epsilon on both. The corrected region
is that of the moment correction; `das.inference.regression.attenuation` says where the naive one converges to.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from das.errors import InputError
from das.inference.additive_noise import laplace
from das.inference.regression.attenuation import Line, attenuated
from das.inference.regression.moments import RegressionFit, corrected_fit, naive_fit
from das.report.charts import dash_sample
from das.report.pages import page_template
from das.report.regions import Region, region_chart

__all__ = ["EPSILONS", "TRUE", "example", "outline", "render", "write_page"]

EPSILONS = (0.5, 0.2, 0.1)
TRUE = Line(intercept=-5.0, slope=4.0, residual_variance=25.0)
MEAN, ROWS, SEED = 10.0, 20_000, 1
"""Mean of the true counts, rows of the simulated data, and the seed of the simulation."""


def example(*, rows: int = ROWS, seed: int = SEED) -> list[dict[str, Any]]:
    """Simulate and fit the example at each epsilon: limits, the naive fit, and the corrected one if there is one."""
    rng = np.random.default_rng(seed)
    x = rng.poisson(MEAN, rows)
    y = TRUE.intercept + TRUE.slope * x + rng.normal(0, math.sqrt(TRUE.residual_variance), rows)
    found = []
    for epsilon in EPSILONS:
        noise = laplace(1 / epsilon)
        noisy_x, noisy_y = x + noise.draw(rng, rows), y + noise.draw(rng, rows)
        limit = attenuated(TRUE, mean=MEAN, variance=MEAN, noise_x=noise.variance, noise_y=noise.variance)
        corrected: RegressionFit | None
        try:
            corrected = corrected_fit(noisy_x, noisy_y, noise=noise.variance, noise_y=noise.variance)
        except InputError:
            corrected = None
        naive = naive_fit(noisy_x, noisy_y)
        found.append({"epsilon": epsilon, "limit": asdict(limit), "naive": naive, "corrected": corrected})
    return found


def outline(fit: RegressionFit, confidence: float = 0.95, points: int = 120) -> NDArray[np.float64]:
    """Return the edge of the joint confidence region of slope and intercept, an ellipse."""
    radius = math.sqrt(float(chi2.ppf(confidence, 2)))
    root = np.linalg.cholesky(fit.covariance[:2, :2])
    angles = np.linspace(0, 2 * math.pi, points, endpoint=False)
    edge = fit.coefficients[:2, None] + radius * root @ np.stack([np.cos(angles), np.sin(angles)])
    return np.asarray(edge[::-1].T, dtype=np.float64)  # slope across, intercept up


def render(found: list[dict[str, Any]], *, rows: int = ROWS) -> str:
    """Write the page.

    Examples
    --------
    >>> page = render(example(rows=2_000), rows=2_000)
    >>> page.count('role="img"'), "<script" in page
    (3, False)
    """
    charts = []
    for each in found:
        epsilon = each["epsilon"]
        fits = {name: each[name] for name in ("naive", "corrected") if each[name] is not None}
        regions = [
            Region(name, (float(fit.coefficients[1]), float(fit.coefficients[0])), [(a, b) for a, b in outline(fit)])
            for name, fit in fits.items()
        ]
        title = f"95 % regions of slope and intercept at epsilon {epsilon:g}"
        name = f"regions-{round(10 * epsilon)}"
        drawn = region_chart(name, title, regions, (TRUE.slope, TRUE.intercept), across="slope", up="intercept")
        charts.append({"epsilon": epsilon, "drawn": drawn, "lines": [(dash_sample(k), f) for k, f in enumerate(fits)]})
    return page_template("das.inference.regression", "regression.html.j2").render(found=found, charts=charts, rows=rows)


def write_page(path: Path) -> None:
    """Write the example's page to a file."""
    path.write_text(render(example()), encoding="utf-8")
