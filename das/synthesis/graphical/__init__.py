"""Maximum-entropy models of noisy marginals on a junction tree, and the selectors that decide what to measure."""
