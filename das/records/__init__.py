"""From input files to counts: reading records or aggregate tables, and encoding them by cell."""
