"""Regression of noisy counts on noisy counts: what noise does to a slope, and fits that account for it."""
