"""Files, staging, run identity and ledger: what a run keeps on disk, and how nothing half-written is taken for done."""
