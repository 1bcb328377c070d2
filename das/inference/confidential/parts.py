"""Disjoint random parts of the rows, and one estimate from each: what sample-and-aggregate and UDP share.

The estimate of a part is a function of its own rows, of public options and of random bits of its own. So whoever
changes one row changes one estimate. A part on which the estimator fails has none, and later counts as the midpoint
of the bounds: the promise holds whatever the estimator does, as long as it looks at nothing but what it is given.

``init`` and ``step`` are pure; a state is confidential, an info is not.
"""

from __future__ import annotations

import os
import pickle
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.errors import ConfigError, InputError, Interrupted, Problem
from das.inference.algorithm import Algorithm, Progress, Seed
from das.inference.confidential.row_statistics import Statistic
from das.schema.query import Neighbours
from das.storage.hardening import harden
from geography.problem_list import Source, listed

__all__ = [
    "PartOptions",
    "PartsInfo",
    "PartsState",
    "as_rows",
    "estimate_parts",
    "init",
    "part_estimates",
    "public_rows",
    "step",
]

Reals = NDArray[np.float64]
CHUNKS = 64
"""Steps in which the parts are worked through, at most."""
BATCH_WEIGHTS = 1 << 22
"""Weights of a part that are in memory at a time: 32 MB."""
WORTH_WORKERS_SECONDS = 2.0
"""Work that takes less is not worth starting processes for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOptions:
    """How rows are split and how a part is estimated.

    Parameters
    ----------
    parts : int
        The number of disjoint parts.
    bootstraps : int
        Weightings of each part, drawn from Multinomial(rows, 1/n) as in the bag of little bootstraps (Kleiner and
        others 2014); their mean is the part's estimate. 0, or a statistic without weights: that of the part itself.
    bias_correction : {"none", "jackknife"}
        With "jackknife", the bias of order 1/n is removed from each part (Quenouille 1956).
    rows : int, optional
        The public number of rows, for neighbours that add or remove one, because there the true one is confidential.
    on_failure : {"substitute", "refuse"}
        What happens if the estimator fails on a part: the midpoint of the bounds, or an error before anything is spent.
        Whether there was an error depends on the data, so it must stay with whoever may see the data.
    workers : int
        Processes, where the work is worth it and the statistic can be sent to one. 0: one for each core.

    Examples
    --------
    >>> PartOptions(parts=0)
    Traceback (most recent call last):
    das.errors.ConfigError: parts: 0 is too few; give at least 2
    """

    parts: int
    bootstraps: int = 0
    bias_correction: Literal["none", "jackknife"] = "none"
    rows: int | None = None
    on_failure: Literal["substitute", "refuse"] = "substitute"
    workers: int = 1

    def __post_init__(self) -> None:
        problems = []
        for name, value, least in (
            ("parts", self.parts, 2),
            ("bootstraps", self.bootstraps, 0),
            ("workers", self.workers, 0),
        ):
            if value < least:
                problems.append(Problem(name, f"{value} is too few", f"give at least {least}"))
        if self.bootstraps and self.bias_correction != "none":
            reason = "is for parts without bootstraps"
            problems.append(Problem("bias_correction", reason, "leave out one of the two"))
        if problems:
            raise ConfigError(problems)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PartsState:
    """Confidential: the rows in the order of their parts, where each part begins, and the estimates so far."""

    rows: Reals
    starts: NDArray[np.intp]
    weight: int
    entropy: int
    estimates: Reals
    failures: tuple[str, ...] = ()

    @property
    def done(self) -> int:
        """How many parts are estimated."""
        return len(self.estimates)


@dataclass(frozen=True, slots=True)
class PartsInfo:
    """How many parts are done; nothing of what came out."""

    done: int
    of: int


def as_rows(data: ArrayLike, name: str = "data") -> Reals:
    """Return data as an array (rows, columns) of finite numbers.

    Raises
    ------
    InputError
        Some value is missing or is not a number; the row is named and its value is not.

    Examples
    --------
    >>> as_rows([1, 2, 3]).shape
    (3, 1)
    >>> as_rows([1.0, float("nan")])
    Traceback (most recent call last):
    das.errors.InputError: data, row 2: a value is missing or is not a finite number; fill it in, or leave the row out
    """
    try:
        rows = np.array(data, dtype=np.float64)
    except (ValueError, TypeError):
        raise InputError(Problem(name, "is not an array of numbers", "give numbers, one row a person")) from None
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or not rows.size:
        raise InputError(Problem(name, "is not a table of rows and columns with something in it", "give numbers"))
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        reason, remedy = "a value is missing or is not a finite number", "fill it in, or leave the row out"
        source = Source(name, first_row=1)
        raise InputError(listed(bad, lambda i: Problem(source.row(i), reason, remedy), source))
    return rows


def public_rows(rows: Reals, options: PartOptions, neighbours: Neighbours) -> int:
    """Return the number of rows that may be known: the true one if rows are replaced, otherwise the stated one.

    Raises
    ------
    InputError
        There are more parts than rows.
    ConfigError
        Under add-remove no number is stated.
    """
    if neighbours is Neighbours.ADD_REMOVE and options.rows is None:
        reason = "under add-remove the number of rows is confidential"
        raise ConfigError(Problem("rows", reason, "state a public number, near the true one"))
    known = len(rows) if options.rows is None or neighbours is Neighbours.REPLACE else options.rows
    if options.parts > known:
        raise InputError(Problem("parts", f"there are more of them ({options.parts}) than rows", "ask for fewer"))
    return known


def init(
    rows: Reals, options: PartOptions, seed: int, neighbours: Neighbours = Neighbours.REPLACE, size: int = 1
) -> PartsState:
    """Deal the rows to parts at random, independently of what they hold; ``size`` is the length of an estimate.

    If rows are replaced, parts are equal in size. If they are added or removed, each row goes to a part by itself, so
    that one row more or less leaves all other parts as they are.
    """
    known = public_rows(rows, options, neighbours)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    if neighbours is Neighbours.REPLACE:
        label = rng.permutation(np.arange(len(rows)) % options.parts)
    else:
        label = rng.integers(0, options.parts, size=len(rows))
    starts = np.concatenate([[0], np.cumsum(np.bincount(label, minlength=options.parts))])
    ordered = rows[np.argsort(label, kind="stable")]
    ordered.flags.writeable = False
    return PartsState(ordered, starts, known, seed, np.empty((0, size)))


def step(state: PartsState, statistic: Statistic, options: PartOptions) -> tuple[PartsState, PartsInfo]:
    """Estimate the next few parts; the state that is given stays as it is."""
    begin, end = state.done, min(state.done + _chunk_size(options), options.parts)
    return _with_chunk(state, _estimate(*_work(state, begin, end, statistic, options)), options)


def part_estimates(
    *,
    rows: Reals,
    statistic: Statistic,
    options: PartOptions,
    neighbours: Neighbours = Neighbours.REPLACE,
    size: int = 1,
) -> Algorithm[PartsState, PartsInfo]:
    """Bind ``init`` and ``step`` to data, in the shape of every algorithm here; the seed of ``init`` decides all."""

    def begin(seed: Seed) -> PartsState:
        return init(rows, options, int(np.random.default_rng(seed).integers(2**63)), neighbours, size)

    return Algorithm(
        name="parts",
        options=options,
        init=begin,
        step=lambda _, state: step(state, statistic, options),
        done=lambda state: (state.done, options.parts),
    )


def estimate_parts(
    rows: Reals,
    statistic: Statistic,
    options: PartOptions,
    *,
    seed: int,
    neighbours: Neighbours = Neighbours.REPLACE,
    size: int = 1,
    progress: Progress | None = None,
    state: PartsState | None = None,
) -> PartsState:
    """Estimate every part, on several cores where that is worth it; a state of an earlier call is continued.

    The result depends on rows, statistic, options and seed alone, and not on how the work was split.

    Raises
    ------
    InputError
        The estimator fails on every part, or on one if ``on_failure`` is "refuse"; nothing was spent.

    Examples
    --------
    >>> from das.inference.confidential.row_statistics import BUILT_IN
    >>> rows = as_rows(np.arange(100.0))
    >>> state = estimate_parts(rows, BUILT_IN["mean"], PartOptions(parts=5), seed=1)
    >>> float(state.estimates.mean())
    49.5
    """
    statistic.check_columns(rows.shape[1])
    now = init(rows, options, seed, neighbours, size) if state is None else state
    began, first = time.monotonic(), now.done
    while now.done < options.parts:
        now, info = step(now, statistic, options)
        if progress is not None:
            progress("parts", info.done, info.of)
        left = (time.monotonic() - began) / (now.done - first) * (options.parts - now.done)
        workers = (options.workers or os.cpu_count() or 1) if left > WORTH_WORKERS_SECONDS else 1
        if workers > 1 and _can_travel(statistic):
            for after, info in _in_processes(now, statistic, options, workers):
                now = after
                if progress is not None:
                    progress("parts", info.done, info.of)
    failed = len(now.failures)
    if failed and (options.on_failure == "refuse" or failed == options.parts):
        which = "every part" if failed == options.parts else "a part"
        reason = f"the estimator failed on {which} ({', '.join(sorted(set(now.failures)))}); nothing was spent"
        remedy = "mend it, or give it larger parts; that it failed is as confidential as the data"
        raise InputError(Problem(statistic.name, reason, remedy))
    return now


Work = tuple[Statistic, PartOptions, list[Reals], int, int, int, int]


def _chunk_size(options: PartOptions) -> int:
    return -(-options.parts // CHUNKS)


def _work(state: PartsState, begin: int, end: int, statistic: Statistic, options: PartOptions) -> Work:
    blocks = [state.rows[state.starts[part] : state.starts[part + 1]] for part in range(begin, end)]
    return statistic, options, blocks, begin, state.weight, state.entropy, state.estimates.shape[1]


def _estimate(
    statistic: Statistic, options: PartOptions, blocks: list[Reals], first: int, weight: int, entropy: int, size: int
) -> tuple[Reals, tuple[str, ...]]:
    """Estimate some parts; one on which the estimator fails is not a number, and the kind of its error is kept."""
    found, failures = np.full((len(blocks), size), np.nan), []
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning may quote data
        for i, block in enumerate(blocks):
            try:
                one = _part_estimate(statistic, options, block, first + i, weight, entropy)
                if one.shape != (size,) or np.isnan(one).any():
                    raise ValueError
                found[i] = one
            except Exception as error:  # whatever an estimator may raise
                failures.append(type(error).__name__)
    return found, tuple(failures)


def _part_estimate(
    statistic: Statistic, options: PartOptions, block: Reals, part: int, weight: int, entropy: int
) -> Reals:
    n = len(block)
    if options.bias_correction == "jackknife":
        (whole,) = statistic.values(block, np.ones((1, n)))
        without = (1 - np.eye(each.stop - each.start, n, each.start) for each in _batches(n, n))
        return np.asarray(n * whole - (n - 1) * _mean_over(statistic, block, without))
    if options.bootstraps and statistic.weighted:
        rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(1, part)))
        equal = np.full(n, 1 / n)
        drawn = (rng.multinomial(weight, equal, size=len(each)) for each in _batches(options.bootstraps, n))
        return _mean_over(statistic, block, drawn)
    return np.asarray(statistic.values(block, None)[0])


def _batches(weightings: int, rows: int) -> Iterator[range]:
    """Cut a number of weightings of so many rows into runs that fit the memory."""
    size = max(1, BATCH_WEIGHTS // max(rows, 1))
    yield from (range(first, min(first + size, weightings)) for first in range(0, weightings, size))


def _mean_over(statistic: Statistic, block: Reals, batches: Iterable[NDArray[Any]]) -> Reals:
    """Mean of a statistic over weightings, which come in batches."""
    values = [statistic.values(block, weights.astype(np.float64)) for weights in batches]
    return np.asarray(np.concatenate(values).mean(axis=0))


def _with_chunk(
    state: PartsState, chunk: tuple[Reals, tuple[str, ...]], options: PartOptions
) -> tuple[PartsState, PartsInfo]:
    found, failures = chunk
    estimates = np.concatenate([state.estimates, found])
    estimates.flags.writeable = False
    now = replace(state, estimates=estimates, failures=state.failures + failures)
    return now, PartsInfo(now.done, options.parts)


def _can_travel(statistic: Statistic) -> bool:
    """Whether another process can find the statistic; one of the script itself would run the script again there."""
    try:
        return getattr(statistic.function, "__module__", "") != "__main__" and bool(pickle.dumps(statistic))
    except Exception:  # whatever pickling a user's object raises
        return False


def _in_processes(
    state: PartsState, statistic: Statistic, options: PartOptions, workers: int
) -> Iterator[tuple[PartsState, PartsInfo]]:
    size = _chunk_size(options)
    begins = range(state.done, options.parts, size)
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=harden)
    try:
        sent: list[Any] = [
            pool.submit(_estimate, *_work(state, begin, min(begin + size, options.parts), statistic, options))
            for begin in begins
        ]
        for future in sent:
            state, info = _with_chunk(state, future.result(), options)
            yield state, info
    except BrokenProcessPool:
        reason = "a process of the estimator ended by itself; nothing was spent"
        raise Interrupted(Problem(statistic.name, reason, "give it more memory, or one worker")) from None
    finally:
        pool.shutdown(cancel_futures=True)
