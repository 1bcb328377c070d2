"""The shape of every algorithm here: pure ``init`` and ``step``, a State apart from an Info, frozen options.

``step`` never changes the state that it is given, and all its randomness comes from the seed that it is given, so the
same seed and state give the same result. A State is what the next step needs, an Info what a person may want to know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.random import Generator, SeedSequence

from das.errors import ConfigError, Problem

__all__ = ["Algorithm", "Progress", "Run", "Seed", "at_least", "run"]

Seed = int | SeedSequence | Generator
"""What `numpy.random.default_rng` takes; a Generator is used where it stands and moves on."""
Progress = Callable[[str, int, int], None]
"""Told the name of the work, how much is done, and of how much."""

State = TypeVar("State")
Info = TypeVar("Info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm(Generic[State, Info]):
    """An algorithm with its problem and options bound to it.

    Examples
    --------
    >>> counting = Algorithm(
    ...     name="counting",
    ...     options=None,
    ...     init=lambda seed: 0,
    ...     step=lambda seed, state: (state + 1, {"was": state}),
    ...     done=lambda state: (state, 3),
    ... )
    >>> run(counting, seed=1)
    Run(state=3, infos=({'was': 0}, {'was': 1}, {'was': 2}))
    """

    name: str
    options: Any
    init: Callable[[Seed], State]
    step: Callable[[Seed, State], tuple[State, Info]]
    done: Callable[[State], tuple[int, int]]
    """How much of the work a state holds, and of how much; the two are equal at the end."""


def at_least(options: object, **least: float) -> None:
    """Refuse options below their least values, all at once.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> at_least(SimpleNamespace(draws=0, chains=2), draws=1, chains=1)
    Traceback (most recent call last):
    das.errors.ConfigError: draws: is below 1
    """
    wrong = [Problem(name, f"is below {value:g}") for name, value in least.items() if getattr(options, name) < value]
    if wrong:
        raise ConfigError(*wrong)


@dataclass(frozen=True, slots=True)
class Run(Generic[State, Info]):
    """The last state, and what each step told."""

    state: State
    infos: tuple[Info, ...]


def run(
    algorithm: Algorithm[State, Info], *, seed: Seed, progress: Progress | None = None, state: State | None = None
) -> Run[State, Info]:
    """Step until the work is done; a ``state`` of an earlier run is continued."""
    rng = np.random.default_rng(seed)
    now = algorithm.init(rng) if state is None else state
    infos: list[Info] = []
    while True:
        have, of = algorithm.done(now)
        if progress is not None:
            progress(algorithm.name, have, of)
        if have >= of:
            return Run(now, tuple(infos))
        now, info = algorithm.step(rng, now)
        infos.append(info)
