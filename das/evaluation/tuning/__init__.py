"""How little budget meets stated accuracy targets, and with which shares: ``das tune``."""

from __future__ import annotations

from das.evaluation.tuning.targets import Target, Targets, read_targets
from das.evaluation.tuning.tune import Tuned, tune

__all__ = ["Target", "Targets", "Tuned", "read_targets", "tune"]
