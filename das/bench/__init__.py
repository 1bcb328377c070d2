"""Benchmarks: each against a peer, in one process and one run."""
