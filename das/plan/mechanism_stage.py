"""For each method: which folder its mechanism fills, and how it is accounted. A new method is an entry here.

``measure`` adds independent noise to every answer; counts are estimated from that later, on the public side.
``congenial`` draws conforming counts at once: its noise is conditioned on the public facts, so nothing is left to
estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from das.accounting.conditioned_tree import PROMISED, TreeSampler

__all__ = ["BY_METHOD", "MechanismStage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismStage:
    """The stage that applies a mechanism to true counts."""

    name: Literal["measure", "congenial"]
    folder: Literal["measurements", "counts"]
    """The folder of the release that the mechanism itself fills."""
    sampler: TreeSampler | None
    """The proved errors of the sampler where noise is conditioned on the public facts; they are part of the account."""
    kernels: str
    """A module of compiled kernels without which no counts come about."""
    calculates: Literal["measure", "estimate"]
    """The stage of a run that needs them."""

    @property
    def measures(self) -> bool:
        """Whether noisy measurements are released, from which counts are then estimated."""
        return self.folder == "measurements"


BY_METHOD: dict[str, MechanismStage] = {
    "nonnegative-l2": MechanismStage(
        name="measure",
        folder="measurements",
        sampler=None,
        kernels="das.estimation.solvers.active_set.kernel",
        calculates="estimate",
    ),
    "congenial": MechanismStage(
        name="congenial",
        folder="counts",
        sampler=PROMISED,
        kernels="das.congenial.backward_sampling",
        calculates="measure",
    ),
}
"""The mechanism stage of each ``[estimate] method``."""
