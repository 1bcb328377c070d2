"""Worker processes: how they start, report errors and progress, and end."""
