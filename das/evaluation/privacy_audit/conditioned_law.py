"""Do conforming draws follow the stated conditioned law? E-values against the same law with another scale of noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from das.congenial.tree import Tree
from das.evaluation.privacy_audit.checks import Check
from das.evaluation.privacy_audit.conditioned_loss import log_normalizer, tree_of_world
from das.evaluation.privacy_audit.mechanism_runs import Runs, facts_between
from das.evaluation.privacy_audit.noise_law import FACTORS, log_e_value
from das.evaluation.privacy_audit.small_world import Counts, SmallWorld
from das.noise import DiscreteGaussian, DiscreteLaplace
from das.noise.two_sided import TwoSidedNoise

__all__ = ["check_conditioned_law"]

NAME = "The conforming draws have the stated distribution"


def check_conditioned_law(world: SmallWorld, made: Sequence[tuple[Counts, Counts, Runs]], error: float) -> Check:
    """Test draws against the stated law: `made` are a data set, the one it was compared with, and its runs.

    The likelihood of a table under noise of another scale, over that under the stated scale, multiplies over the runs;
    its mean is one if the stated law is true (``noise_law.py``).
    """
    logs, draws = np.zeros(len(FACTORS)), 0
    reached = np.flatnonzero(world.rows.any(axis=1)).tolist()  # elsewhere nobody can be counted: no node of the tree
    kinds: dict[TwoSidedNoise, list[int]] = {}
    for row in reached:
        kinds.setdefault(world.mechanisms[row], []).append(row)
    for data, other, runs in made:
        if not len(runs.answers):
            continue
        tree = tree_of_world(world, facts_between(world, data, other))
        stated = log_normalizer(tree, data)
        noise = runs.answers - world.rows @ data
        for place, factor in enumerate(FACTORS):
            ratio = len(noise) * (stated - log_normalizer(_scaled_tree(tree, factor), data))
            for kind, rows in kinds.items():
                values, counts = np.unique(noise[:, rows], return_counts=True)
                ratio += float(counts @ (_scaled(kind, factor).log_pmf(values) - kind.log_pmf(values)))
            logs[place] += ratio
        draws += len(noise)
    if not draws:
        return Check(name=NAME, verdict="not checked", detail="nothing was released")
    found = log_e_value(logs)
    shown = f"e^{found:.1f}" if abs(found) > 20 else f"{math.exp(found):.3g}"
    detail = f"{draws:,} tables; e-value against other scales {shown}"
    return Check(name=NAME, verdict="VIOLATED" if found >= -math.log(error) else "consistent", detail=detail)


def _scaled_tree(tree: Tree, factor: float) -> Tree:
    return replace(tree, noise=tuple(None if each is None else _scaled(each, factor) for each in tree.noise))


def _scaled(noise: TwoSidedNoise, factor: float) -> TwoSidedNoise:
    """Noise of the same kind with its scale multiplied."""
    ratio = Fraction(factor).limit_denominator(1000)
    if noise.weights.quadratic:
        return DiscreteGaussian(ratio**2 / (2 * noise.weights.quadratic))
    return DiscreteLaplace(ratio / noise.weights.linear)
