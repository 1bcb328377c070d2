"""What leaves the system, and the record of what it cost: durable stages, the privacy ledger, published files."""
