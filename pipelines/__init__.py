"""How a release runs: Beam transforms that call das on one family, or one part of a level, at a time."""
