"""What the noise's generator adds to delta: AES is a permutation, and names of streams may collide.

``das/accounting/randomness.md`` has the proof; the numbers follow from the plan and the geography alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from das.accounting.condition import Condition, Kind
from das.exact import float_upper
from das.noise.stream import LANES_PER_BLOCK
from das.plan.plan import Plan
from geography import Spine

__all__ = ["UNBROKEN", "Generator", "generator_of"]

UNBROKEN = Condition(
    kind=Kind.PSEUDORANDOM,
    words="if AES-256 is a pseudorandom permutation, and keyed BLAKE2b and HKDF-SHA256 are pseudorandom functions",
)
ATTACK = "An attack that tells them from random ones with advantage A would add (1 + e^epsilon) A to delta."
CHANGED = 8  # answers of one query that two records change, over both cells that they leave and enter


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """How much of the cipher a run uses.

    Parameters
    ----------
    streams : int
        Names, each of one geounit and query.
    lane_blocks, deep_blocks, word_blocks : int
        Blocks under each of the three keys, at most.
    changed : int
        Answers that a move of two records changes, at most.

    Examples
    --------
    >>> nation = Generator(streams=10**8, lane_blocks=2**31, deep_blocks=2**34, word_blocks=0, changed=520)
    >>> f"{float(nation.added_delta(20.0)):.2e}"
    '6.31e-14'
    """

    streams: int
    lane_blocks: int
    deep_blocks: int
    word_blocks: int
    changed: int

    def added_delta(self, divergence: float) -> Fraction:
        """Bound what independent draws lose: c + 2 E.

        Parameters
        ----------
        divergence : float
            Rényi divergence of order 2 of the costliest move: twice its rho, or its pure epsilon.
        """
        pairs = self.lane_blocks**2 + self.deep_blocks**2
        changed = 2 * self.changed**2 * Fraction(math.exp(min(divergence, 600.0)) * (1 + 2.0**-40))
        return Fraction(self.streams**2, 2**97) + 2 * (pairs + changed) / 2**129

    @classmethod
    def of_all(cls, used: Sequence[Generator]) -> Generator:
        """Count what several runs use as if it were under one key, which can only overstate what they add."""
        return cls(**{field.name: sum(getattr(each, field.name) for each in used) for field in fields(cls)})

    @property
    def word_variation(self) -> Fraction:
        """Distance of the sampler's words from independent ones; it joins the sampler's total variation."""
        return Fraction(self.word_blocks**2, 2**129)

    def to_json(self, divergence: float) -> dict[str, Any]:
        """Describe it for ``privacy.json``, with its condition."""
        return {
            "delta": float_upper(self.added_delta(divergence)),
            "streams": self.streams,
            "blocks": self.lane_blocks + self.deep_blocks + self.word_blocks,
            "status": "proved",
            "condition": UNBROKEN.to_json(),
            "attack": ATTACK,
        }


def generator_of(plan: Plan, spine: Spine) -> Generator:
    """Count streams and blocks of a plan on its geography; every draw is taken to need further bits."""
    per_unit = [(spine.size(m.level), m.query.size) for m in plan.measurements]
    draws = sum(units * cells for units, cells in per_unit)
    if plan.mechanism_stage.sampler is not None:
        # one word a count of the tree, and counts of each level are at most its cells and its measured answers
        words = draws + sum(spine.size(level) * plan.schema.size for level in plan.levels)
        streams = sum(spine.size(level) for level in plan.levels) * (1 + len(plan.measurements))
        return Generator(streams=streams, lane_blocks=0, deep_blocks=0, word_blocks=words, changed=0)
    return Generator(
        streams=sum(units for units, _ in per_unit),
        lane_blocks=sum(units * -(-cells // LANES_PER_BLOCK) for units, cells in per_unit),
        deep_blocks=draws,
        word_blocks=0,
        changed=CHANGED * len(plan.measurements),
    )
