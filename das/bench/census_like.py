"""Generated files, for comparing ways to make synthetic records; nobody is in them.

`households` resembles a census of persons: pairwise effects along a sequence of attributes, a few three-way effects,
structural zeros between age and relationship and between age and education. `employment` has another structure: six
latent classes, then effects of pairs and of one triple. Settings of methods are fixed on `employment`, and methods are
compared on `households`, so that nothing is tuned where it is compared. `questionnaire` has more cells than any table
or junction tree of all its pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.synthesis.domain import Constraints, Domain, Zero

__all__ = ["GeneratedFile", "employment", "households", "questionnaire"]

Codes = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GeneratedFile:
    """Records as label positions, their domain and what is impossible."""

    domain: Domain
    constraints: Constraints
    codes: Codes


def households(*, seed: int, n: int = 100_000) -> GeneratedFile:
    """Return a census-like file: 1.45 million cells.

    Examples
    --------
    >>> file = households(seed=1, n=100)
    >>> file.domain.size, file.codes.shape
    (1451520, (100, 8))
    """
    rng = np.random.default_rng(seed)
    age_axis = np.arange(18)
    county = _draw(np.tile(np.arange(1, 17) ** -0.9, (n, 1)), rng)
    age = _draw(_softmax(-0.5 * ((age_axis - 7) / 8.0) ** 2 + _smooth(rng, 16, 18, 0.6)[county]), rng)
    older = np.maximum(age - 11, 0)
    sex_effect = np.stack([np.zeros(n), 0.1 - 0.03 * older], axis=1)
    sex = _draw(_softmax(sex_effect + rng.normal(0, 0.05, (16, 2))[county]), rng)
    by_age = 0.03 * np.outer(age - 8, [1, 0, -0.5, 0, -0.5, -1, -1])
    race_base = np.array([1.8, 0.2, -1.0, -0.6, -2.5, -0.4, -0.6])
    race = _draw(_softmax(race_base + rng.normal(0, 0.8, (16, 7))[county] + by_age), rng)
    by_race = np.array([[0, 0], [1, -1], [0, 1], [1.5, -1], [0, 0], [-2, 2], [0, 0.3]])[race]
    hispanic_base = np.stack([np.full(n, 1.2), -0.02 * (age - 8)], axis=1)
    hispanic = _draw(_softmax(hispanic_base + rng.normal(0, 0.6, (16, 2))[county] + by_race), rng)
    relation = _relation(age, {"sex": sex, "race": race, "county": county, "hispanic": hispanic}, rng)
    owner = np.array([0.8, 0.9, -0.5, 0.6, 0.3, 0.8, 0, -1, 0, -3])[relation] + 0.08 * (age - 8)
    tenure_effect = np.stack([owner, 0.2 - 0.02 * (age - 8), np.full(n, -2.2)], axis=1)
    tenure_effect += rng.normal(0, 0.4, (7, 3))[race] + rng.normal(0, 0.4, (16, 3))[county]
    tenure_effect += rng.normal(0, 0.2, (10, 3))[relation] + rng.normal(0, 0.15, (7, 16, 3))[race, county]
    tenure = _draw(_softmax(tenure_effect), rng)
    middle = 1.2 + 2.2 * np.minimum(age_axis, 8) / 8 - 0.08 * np.maximum(age_axis - 10, 0)
    education_effect = (-0.5 * ((np.arange(6) - middle[:, None]) / 1.1) ** 2)[age]
    effects = ((race, 7, 0.4), (county, 16, 0.25), (tenure, 3, 0.3), (sex, 2, 0.15), (relation, 10, 0.15))
    for column, labels, size in effects:
        education_effect = education_effect + rng.normal(0, size, (labels, 6))[column]
    education = _draw(np.where(_EDUCATION_POSSIBLE[age], _softmax(education_effect), 0), rng)
    names = ("county", "sex", "age", "race", "hispanic", "relation", "tenure", "education")
    zeros = (
        Zero(("age", "relation"), ~_RELATION_POSSIBLE),
        Zero(("age", "education"), ~_EDUCATION_POSSIBLE),
    )
    columns = (county, sex, age, race, hispanic, relation, tenure, education)
    domain = Domain(names, (16, 2, 18, 7, 2, 10, 3, 6))
    return GeneratedFile(domain, Constraints(zeros=zeros), np.stack(columns, axis=1))


def employment(*, seed: int, n: int = 100_000) -> GeneratedFile:
    """Return a file of latent classes: 1.66 million cells.

    Examples
    --------
    >>> employment(seed=1, n=100).domain.size
    1658880
    """
    rng = np.random.default_rng(seed)
    kind = _draw(np.tile(rng.dirichlet(np.full(6, 3.0)), (n, 1)), rng)

    def by_kind(labels: int, size: float) -> Values:
        return np.asarray(rng.normal(0, size, (6, labels))[kind])

    region = _draw(_softmax(by_kind(12, 0.9)), rng)
    age = _draw(_softmax(np.cumsum(rng.normal(0, 0.5, (6, 16)), axis=1)[kind]), rng)
    sex = _draw(_softmax(by_kind(2, 0.3)), rng)
    ageing = np.cumsum(rng.normal(0, 0.35, (16, 5)), axis=0)
    marital = np.where(age < 3, 0, _draw(_softmax(by_kind(5, 0.45) + ageing[age]), rng))
    work = by_kind(9, 0.9) + rng.normal(0, 0.4, (2, 9))[sex] + rng.normal(0, 0.3, (16, 9))[age]
    occupation = np.where(age < 2, 8, _draw(_softmax(work), rng))
    centre = 2 + rng.normal(0, 1.0, 9)[occupation] + 0.15 * age - 0.004 * age**2 + 0.5 * sex
    pay = -0.5 * ((np.arange(8) - centre[:, None]) / 1.5) ** 2 + rng.normal(0, 0.3, (12, 8))[region]
    income = _draw(_softmax(pay), rng)
    effort = rng.normal(0, 0.7, (9, 4))[occupation] + rng.normal(0, 0.4, (2, 5, 4))[sex, marital]
    hours = _draw(_softmax(effort), rng)
    ill = np.array([1.0, 0.3, -1.0]) + np.outer(age - 6, [-0.08, 0, 0.12]) + rng.normal(0, 0.2, (8, 3))[income]
    health = _draw(_softmax(ill), rng)
    single = np.zeros((16, 5), dtype=bool)
    single[:3, 1:] = True
    young = np.zeros((16, 9), dtype=bool)
    young[:2, :8] = True
    zeros = (Zero(("age", "marital"), single), Zero(("age", "occupation"), young))
    names = ("region", "age", "sex", "marital", "occupation", "income", "hours", "health")
    columns = (region, age, sex, marital, occupation, income, hours, health)
    domain = Domain(names, (12, 16, 2, 5, 9, 8, 4, 3))
    return GeneratedFile(domain, Constraints(zeros=zeros), np.stack(columns, axis=1))


def questionnaire(*, seed: int, n: int = 50_000) -> GeneratedFile:
    """Return a file of twenty attributes, each depending on three earlier ones: 1.3e14 cells, no structural zeros.

    Examples
    --------
    >>> len(questionnaire(seed=1, n=10).domain.names)
    20
    """
    rng = np.random.default_rng(seed)
    sizes = tuple(int(size) for size in np.tile([3, 5, 8, 4, 7], 4))
    columns: list[Codes] = []
    for place, labels in enumerate(sizes):
        effect = np.tile(rng.normal(0, 0.5, labels), (n, 1))
        for other in rng.choice(place, min(3, place), replace=False):
            effect = effect + rng.normal(0, 0.7, (sizes[other], labels))[columns[other]]
        columns.append(_draw(_softmax(effect), rng))
    domain = Domain(tuple(f"q{place + 1:02d}" for place in range(len(sizes))), sizes)
    return GeneratedFile(domain, Constraints(), np.stack(columns, axis=1))


def _relation(age: Codes, others: dict[str, Codes], rng: np.random.Generator) -> Codes:
    """Relationship to the householder: householder, spouse, partner, child, grandchild, parent, sibling, and others."""
    a = np.arange(18)
    curves = (
        1.6 - ((a - 10) / 7.0) ** 2,
        1.2 - ((a - 10) / 6.0) ** 2,
        0.2 - ((a - 6) / 4.0) ** 2,
        2.4 - 0.55 * a,
        0.6 - 0.6 * a,
        -4 + 0.22 * a,
        -1.4 - ((a - 5) / 7.0) ** 2,
        -0.6 - ((a - 5) / 4.0) ** 2,
        -1.2 - ((a - 6) / 10.0) ** 2,
        -3.2 + 0.12 * a,
    )
    effect = np.stack(curves, axis=1)[age]
    for name, labels, size in (("sex", 2, 0.3), ("race", 7, 0.35), ("county", 16, 0.15), ("hispanic", 2, 0.2)):
        effect = effect + rng.normal(0, size, (labels, 10))[others[name]]
    effect = effect + rng.normal(0, 0.25, (2, 18, 10))[others["sex"], age]
    return _draw(np.where(_RELATION_POSSIBLE[age], _softmax(effect), 0), rng)


def _relation_possible() -> NDArray[np.bool_]:
    """Children are no householders, spouses or parents; the oldest are no children or grandchildren."""
    possible = np.ones((18, 10), dtype=bool)
    possible[:3, [0, 1, 2, 5, 7]] = False
    possible[14:, 4] = False
    possible[:7, 5] = False
    possible[16:, 3] = False
    return possible


def _education_possible() -> NDArray[np.bool_]:
    """The young have not finished what takes longer."""
    possible = np.ones((18, 6), dtype=bool)
    for age, first_impossible in ((0, 1), (1, 2), (2, 2), (3, 3), (4, 5)):
        possible[age, first_impossible:] = False
    return possible


_RELATION_POSSIBLE = _relation_possible()
_EDUCATION_POSSIBLE = _education_possible()


def _softmax(effect: Values) -> Values:
    weight = np.exp(effect - effect.max(axis=-1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True))


def _draw(weights: Values, rng: np.random.Generator) -> Codes:
    sums = weights.cumsum(axis=-1)
    return np.asarray((rng.random(len(weights))[:, None] * sums[:, -1:] > sums).sum(axis=-1), dtype=np.int64)


def _smooth(rng: np.random.Generator, rows: int, labels: int, size: float) -> Values:
    """Effects that change little from one label to the next."""
    walk = rng.normal(0, size, (rows, labels)).cumsum(axis=1) * 2 / np.sqrt(labels)
    return np.asarray(walk - walk.mean(axis=1, keepdims=True))
