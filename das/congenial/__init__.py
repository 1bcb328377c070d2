"""Noise conditioned on public constraints: exact samplers for trees of counts, and beyond."""
