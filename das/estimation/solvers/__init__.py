"""Solvers of one family's nonnegative least squares; all of them find the same optimum."""
