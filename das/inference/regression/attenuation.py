"""What naive regression on noisy counts converges to: slopes shrink, intercepts absorb them, residuals grow.

With x_dp = x + u and y_dp = y + v, and lambda = V(x) / (V(x) + V(u)) (Fuller 1987, section 1.1; Gong 2022):
slope -> lambda beta1, intercept -> beta0 + (1 - lambda) E[x] beta1, and the residual variance of least squares ->
sigma^2 + V(v) + lambda beta1^2 V(u). Without the last lambda one has the variance of y_dp - beta0 - beta1 x_dp around
the true line, which is not what a fit reports.
"""

from __future__ import annotations

from dataclasses import dataclass

from das.errors import Problem, UsageError

__all__ = ["Line", "attenuated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A regression line with the variance around it."""

    intercept: float
    slope: float
    residual_variance: float


def attenuated(line: Line, *, mean: float, variance: float, noise_x: float, noise_y: float) -> Line:
    """Return the limit of naive least squares.

    Parameters
    ----------
    line : Line
        The true regression.
    mean, variance : float
        Of the true regressor.
    noise_x, noise_y : float
        Variances of the noise on regressor and response.

    Examples
    --------
    >>> true = Line(intercept=-5.0, slope=4.0, residual_variance=25.0)
    >>> naive = attenuated(true, mean=10.0, variance=10.0, noise_x=8.0, noise_y=8.0)  # both at epsilon 1/2
    >>> round(naive.slope, 4), round(naive.intercept, 4), round(naive.residual_variance, 2)
    (2.2222, 12.7778, 104.11)
    """
    if min(variance, noise_x, noise_y) < 0 or variance + noise_x <= 0:
        raise UsageError(Problem("variance", "is negative, or the regressor does not vary", "give variances"))
    reliability = variance / (variance + noise_x)
    return Line(
        intercept=line.intercept + (1 - reliability) * mean * line.slope,
        slope=reliability * line.slope,
        residual_variance=line.residual_variance + noise_y + reliability * line.slope**2 * noise_x,
    )
