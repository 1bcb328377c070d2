"""Files, staging, run identity and ledger: what a run keeps on disk; an incomplete stage is never taken for done."""
