"""Every algorithm has one shape: pure init and step, a State apart from an Info, frozen options.

An algorithm that is added gives an entry of `EXAMPLES`: a small problem with everything bound to it.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from das.inference.abc import AbcOptions, abc
from das.inference.additive_noise import laplace
from das.inference.algorithm import Algorithm, run
from das.inference.algorithms import ALGORITHMS
from das.inference.confidential.parts import PartOptions, part_estimates
from das.inference.confidential.row_statistics import BUILT_IN
from das.inference.data_augmentation import AugmentationOptions, RecordModel, data_augmentation
from das.inference.mcem import McemOptions, complete_data_model, mcem
from das.inference.models import PoissonGamma
from das.inference.regression.chain import ChainOptions, regression_chain
from das.inference.regression.likelihood import CountRegression
from das.inference.statistic import NoisyStatistic

RELEASED = NoisyStatistic(value=37.4, noise=laplace(5))
POISSON = PoissonGamma(shape=25, rate=1)
BERNOULLI = RecordModel(
    prior=lambda rng: rng.uniform(size=1),
    posterior=lambda rng, x: rng.beta(1 + x.sum(), 1 + len(x) - x.sum(), size=1),
    latent=lambda rng, theta, n: (rng.uniform(size=n) < theta[0]).astype(float),
    contribution=lambda x: x,
)

EXAMPLES: dict[str, Callable[[], Algorithm[Any, Any]]] = {
    "abc": lambda: abc(
        statistic=RELEASED, prior=POISSON.prior, simulate=POISSON.simulate, options=AbcOptions(draws=50, batch=100)
    ),
    "data-augmentation": lambda: data_augmentation(
        statistic=NoisyStatistic(value=14.2, noise=laplace(2)),
        model=BERNOULLI,
        options=AugmentationOptions(records=20, draws=10, warmup=5, chains=1),
    ),
    "mcem": lambda: mcem(
        statistic=RELEASED,
        model=complete_data_model(POISSON),
        start=30.0,
        options=McemOptions(iterations=6, draws=200),
    ),
    "parts": lambda: part_estimates(
        rows=np.arange(200.0)[:, None], statistic=BUILT_IN["median"], options=PartOptions(parts=100, bootstraps=2)
    ),
    "regression-chain": lambda: regression_chain(
        problem=CountRegression.of(
            [8.0, 11.5, 9.2, 14.1, 7.7], [30.0, 41.0, 33.0, 49.0, 24.0], noise_x=laplace(1), noise_y=laplace(1)
        ),
        start=np.array([-5.0, 4.0, 1.5, 2.3]),
        spread=np.array([2.0, 0.3, 0.4, 0.1]),
        log_prior=lambda p: -float(p @ p) / 200,
        options=ChainOptions(draws=20, warmup=100, chains=1),
    ),
}


def same(a: Any, b: Any) -> bool:
    """Equality through tuples and arrays."""
    if isinstance(a, tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    return bool(a == b)


def test_every_algorithm_has_an_example() -> None:
    assert EXAMPLES.keys() == ALGORITHMS.keys()


@pytest.fixture(params=sorted(EXAMPLES))
def algorithm(request: pytest.FixtureRequest) -> Algorithm[Any, Any]:
    return EXAMPLES[request.param]()


def test_its_name_is_that_of_the_table(algorithm: Algorithm[Any, Any]) -> None:
    assert algorithm.name in ALGORITHMS
    assert callable(ALGORITHMS[algorithm.name])


def test_init_and_step_are_pure(algorithm: Algorithm[Any, Any]) -> None:
    state = algorithm.init(1)
    assert same(state, algorithm.init(1))
    for seed in (2, 3):
        before = copy.deepcopy(state)
        after, info = algorithm.step(seed, state)
        assert same(state, before), "the state that was given is left as it was"
        again, same_info = algorithm.step(seed, before)
        assert same(after, again)
        assert same(info, same_info)
        state = after


def test_a_seed_decides_a_run(algorithm: Algorithm[Any, Any]) -> None:
    first, again, other = (run(algorithm, seed=seed) for seed in (5, 5, 6))
    assert same(first.state, again.state)
    assert same(first.infos, again.infos)
    assert not same(first.state, other.state)


def test_state_and_info_are_different_values(algorithm: Algorithm[Any, Any]) -> None:
    state, info = algorithm.step(2, algorithm.init(1))
    assert type(state) is not type(info)
    for value in (state, info):
        assert isinstance(value, tuple) or dataclasses.is_dataclass(value), "a NamedTuple or a frozen dataclass"
        name = (value._fields if isinstance(value, tuple) else dataclasses.fields(value))[0]
        with pytest.raises(AttributeError):
            setattr(value, name if isinstance(name, str) else name.name, None)
    assert same(pickle.loads(pickle.dumps(state)), state), "work can be kept and continued"


def test_options_are_frozen_keyword_only_dataclasses(algorithm: Algorithm[Any, Any]) -> None:
    options = algorithm.options
    assert dataclasses.is_dataclass(options)
    assert all(field.kw_only for field in dataclasses.fields(options))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(options, dataclasses.fields(options)[0].name, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        algorithm.name = "other"  # type: ignore[misc]


def test_progress_is_told_and_a_run_can_be_continued(algorithm: Algorithm[Any, Any]) -> None:
    told: list[tuple[str, int, int]] = []
    ended = run(algorithm, seed=1, progress=lambda name, done, of: told.append((name, done, of)))
    assert {name for name, _, _ in told} == {algorithm.name}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1][1] == told[-1][2]
    assert run(algorithm, seed=2, state=ended.state).infos == (), "nothing is left to do"
