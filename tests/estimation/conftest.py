"""Families with a hidden truth: whatever is declared about them can be met, because the truth meets it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from das.estimation.problem import FamilyProblem, Measured
from das.schema.limits import NO_LIMIT, Limits
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

SMALL = Schema(
    (
        Attribute(
            "kind", ("home", "school", "prison"), {"quarters": {"home": ["home"], "group": ["school", "prison"]}}
        ),
        Attribute("age", ("minor", "adult")),
        Attribute("sex", ("f", "m")),
    )
)
REDISTRICTING_QUERIES = (
    "total",
    "cenrace",
    "hispanic",
    "votingage",
    "hhinstlevels",
    "hhgq",
    "hispanic * cenrace",
    "votingage * cenrace",
    "votingage * hispanic",
    "votingage * hispanic * cenrace",
    "detailed",
)


def _redistricting() -> Schema:
    hhgq = ("household", *(f"quarters {i}" for i in range(1, 8)))
    recode = {"hhinstlevels": {"household": hhgq[:1], "institutional": hhgq[1:5], "other": hhgq[5:]}}
    return Schema(
        (
            Attribute("hhgq", hhgq, recode),
            Attribute("votingage", ("minor", "of age")),
            Attribute("hispanic", ("no", "yes")),
            Attribute("cenrace", tuple(f"race {i}" for i in range(63))),
        )
    )


REDISTRICTING = _redistricting()


def truth_to_family(
    schema: Schema,
    truth: np.ndarray,
    rng: np.random.Generator,
    *,
    queries: Sequence[str] = ("total", "detailed"),
    exact: Sequence[str] = (),
    facility: Sequence[str] = (),
    variance: float = 4.0,
    top: bool = False,
) -> FamilyProblem:
    """Measure a hidden table; ``exact`` queries become invariants, ``facility`` queries are empty or at least one."""
    measured = []
    for i, name in enumerate(queries):
        query = parse_query(schema, name)
        answer = query.answer(truth)
        noise = np.rint(rng.normal(0, np.sqrt(variance * (1 + i % 3)), answer.shape)).astype(np.int64)
        measured.append(Measured(query=query, values=answer + noise, variance=variance * (1 + i % 3)))
    limits = []
    for name in exact:
        query = parse_query(schema, name)
        limits.append(Limits(query=query, lower=query.answer(truth), upper=query.answer(truth)))
    for name in facility:
        query = parse_query(schema, name)
        inhabited = query.answer(truth) > 0
        limits.append(Limits(query=query, lower=inhabited.astype(np.int64), upper=np.where(inhabited, NO_LIMIT, 0)))
    parent = truth.sum(axis=0)
    cells = np.arange(schema.size) if top else np.flatnonzero(parent)
    return FamilyProblem(
        level="tract",
        geocodes=tuple(f"44007{i:06d}" for i in range(len(truth))),
        cells=cells,
        parent=None if top else parent[cells],
        measured=tuple(measured),
        limits=tuple(limits),
    )


@pytest.fixture(scope="session")
def small_family() -> Callable[..., FamilyProblem]:
    """Build a family over 3 x 2 x 2 cells from a seed, a number of children and a typical count."""

    def build(seed: int, children: int, mean: float = 2.0, **options: object) -> FamilyProblem:
        rng = np.random.default_rng(seed)
        truth = rng.poisson(mean * rng.gamma(0.5, 2.0, (children, SMALL.size))).astype(np.int64)
        return truth_to_family(SMALL, truth, rng, **options)  # type: ignore[arg-type]

    return build


@pytest.fixture(scope="session")
def redistricting_family() -> Callable[..., FamilyProblem]:
    """Build a family over the 2,016 cells of the redistricting schema with its eleven queries."""

    def build(seed: int, children: int, people: float = 100.0, **options: object) -> FamilyProblem:
        rng = np.random.default_rng(seed)
        share = np.einsum("a,b,c,d->abcd", [0.96, *[0.04 / 7] * 7], [0.25, 0.75], [0.8, 0.2], np.arange(1.0, 64) ** -2)
        sizes = rng.poisson(people * rng.gamma(1.0, 1.0, children)) + 1
        truth = np.stack([rng.multinomial(size, (share / share.sum()).ravel()) for size in sizes])
        return truth_to_family(REDISTRICTING, truth, rng, queries=REDISTRICTING_QUERIES, **options)  # type: ignore[arg-type]

    return build


def permuted(problem: FamilyProblem, order: np.ndarray) -> FamilyProblem:
    """Return the same family with its children in another order."""
    return FamilyProblem(
        level=problem.level,
        geocodes=tuple(problem.geocodes[i] for i in order),
        cells=problem.cells,
        parent=problem.parent,
        measured=tuple(Measured(query=m.query, values=m.values[order], variance=m.variance) for m in problem.measured),
        limits=tuple(Limits(query=k.query, lower=k.lower[order], upper=k.upper[order]) for k in problem.limits),
    )


@pytest.fixture(scope="session")
def reorder() -> Callable[[FamilyProblem, np.ndarray], FamilyProblem]:
    """Give the function that permutes children."""
    return permuted
