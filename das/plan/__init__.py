"""What a release intends: settings, presets, geography and constraints, resolved before any record is read."""
