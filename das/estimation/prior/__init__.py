"""Priors for counts that the measurements say little about."""
