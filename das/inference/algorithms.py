"""All algorithms of inference by name; a new one is an entry here, with an example in the protocol test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from das.inference.abc import abc
from das.inference.algorithm import Algorithm
from das.inference.confidential.parts import part_estimates
from das.inference.data_augmentation import data_augmentation
from das.inference.mcem import mcem
from das.inference.regression.chain import regression_chain

__all__ = ["ALGORITHMS"]

ALGORITHMS: dict[str, Callable[..., Algorithm[Any, Any]]] = {
    "abc": abc,
    "data-augmentation": data_augmentation,
    "mcem": mcem,
    "parts": part_estimates,
    "regression-chain": regression_chain,
}
"""Each binds a problem and its options, and returns ``init`` and ``step``."""
