"""One self-contained page per report, and the same in plain text."""
