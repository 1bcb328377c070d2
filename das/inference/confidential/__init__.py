"""Estimates from confidential rows, each released once and charged to the ledger; see ``README.md``."""
