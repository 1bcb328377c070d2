"""How a release runs: Beam transforms that call das on one family, or one shard of a level, at a time."""
