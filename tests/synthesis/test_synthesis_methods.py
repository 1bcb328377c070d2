"""One protocol for all methods: exact spending, sane models, rows that keep what is declared, named refusals."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest

from das.errors import BudgetError, ConfigError, InfeasibleError, InputError
from das.noise import RunKey
from das.schema.query import Neighbours
from das.synthesis.curator import Curator, Records
from das.synthesis.domain import NO_CONSTRAINTS, Constraints, Domain, Invariant, Zero
from das.synthesis.graphical.aim import AimOptions
from das.synthesis.methods import METHODS, synthesise
from das.synthesis.mixture import MixtureOptions

DOMAIN = Domain(("sex", "age", "work"), (2, 4, 3))
NO_WORKING_CHILDREN = Zero(("age", "work"), np.array([[False, True, True]] + [[False] * 3] * 3))
N = 4_000
LARGEST_ERROR = {"copula": 0.45, "pmw": 0.3}
"""A copula knows monotone dependence alone; PMW spends most of its budget on the search."""
FEW = {"aim": AimOptions(rounds=2), "generative": MixtureOptions(components=20, rounds=2, for_each=2, steps=60)}


def people() -> np.ndarray:
    rng = np.random.default_rng(5)
    sex = rng.integers(0, 2, N)
    age = rng.choice(4, N, p=[0.2, 0.3, 0.3, 0.2])
    work = np.where(age == 0, 0, (rng.random(N) < 0.3 + 0.3 * sex).astype(int) + (rng.random(N) < 0.4))
    return np.stack([sex, age, work], axis=1)


CODES = people()


def curator_of(
    name: str,
    *,
    budget: Fraction = Fraction(2),
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
    key: str = "protocol",
    domain: Domain = DOMAIN,
    codes: np.ndarray = CODES,
) -> Curator:
    streams = RunKey.for_testing(key).streams(b"test")
    framework = METHODS[name].framework
    return Curator(Records(domain, codes), streams, framework=framework, budget=budget, neighbours=neighbours)


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("name", METHODS)
def test_every_method_spends_exactly_what_it_says_and_describes_the_file(name: str, neighbours: Neighbours) -> None:
    zeros = NO_CONSTRAINTS if name == "copula" else Constraints(zeros=(NO_WORKING_CHILDREN,))
    found = synthesise(name, curator_of(name, neighbours=neighbours), zeros, total=N)
    assert 0 <= 2 - found.spent.total < Fraction(1, 10**6), "selection epsilons are rounded down, nothing else is left"
    assert all(step.cost > 0 for step in found.spent.steps)
    assert found.spent.delta == (Fraction(1, 10**6) if name == "stability" else 0)
    model = found.model
    for attributes in (("sex",), ("work", "age"), ("sex", "age", "work")):
        marginal = model.marginal(attributes)
        truth = Records(DOMAIN, CODES).counts(attributes)
        assert marginal.shape == DOMAIN.shape_of(attributes)
        assert (marginal >= 0).all()
        assert marginal.sum() == pytest.approx(N, rel=0.02)
        assert np.abs(marginal - truth).sum() / N < LARGEST_ERROR.get(name, 0.2)
    rows = model.rows(1000, np.random.default_rng(1))
    assert rows.shape == (1000, 3)
    drawn = Records(DOMAIN, rows).counts(("age", "work"))
    apart = np.abs(drawn / 1000 - Records(DOMAIN, CODES).counts(("age", "work")) / N).sum()
    assert apart < LARGEST_ERROR.get(name, 0.2)
    if name != "copula":
        assert drawn[0, 1:].sum() == 0, "a structural zero is exact"


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.framework == "zcdp"])
def test_every_step_costs_what_its_mechanism_says(name: str) -> None:
    """The cost of each step follows from the parameter in its mechanism's name alone."""
    for neighbours, changed in ((Neighbours.ADD_REMOVE, 1), (Neighbours.REPLACE, 2)):
        found = synthesise(name, curator_of(name, neighbours=neighbours), total=N, options=FEW.get(name))
        for step in found.spent.steps:
            if step.what == "second moments":
                sigma2 = Fraction(re.search(r"sigma2=([\d/]+)", step.mechanism)[1])
                assert step.cost == Fraction(changed * 4096**4) / (2 * sigma2)
            elif parameter := re.fullmatch(r"discrete-gaussian\(sigma2=([\d/]+)\)", step.mechanism):
                assert step.cost == Fraction(changed) / (2 * Fraction(parameter[1]))
            else:
                epsilon = Fraction(re.fullmatch(r"exponential\(([\d/]+)\)", step.mechanism)[1])
                assert step.cost == epsilon**2 / 8


def test_measured_noise_has_the_stated_scale() -> None:
    wide = Domain(("cell",), (5_000,))
    curator = curator_of("pairs", budget=Fraction(1, 50), domain=wide, codes=np.zeros((3, 1), dtype=np.int64))
    measured = curator.measure(("cell",), Fraction(1, 50))
    noise = measured.answers - Records(wide, np.zeros((3, 1), dtype=np.int64)).counts(("cell",))
    assert measured.noise.variance() == pytest.approx(25, rel=1e-6)
    # five standard errors of a variance of 5,000 draws are 10 %
    assert noise.var() == pytest.approx(25, rel=0.1)
    assert curator.left == 0
    with pytest.raises(BudgetError, match="is left of"):
        curator.measure(("cell",), Fraction(1, 10**9))


@pytest.mark.parametrize("name", METHODS)
def test_the_same_key_gives_the_same_model_and_another_key_another(name: str) -> None:
    models = [
        synthesise(name, curator_of(name, key=key), total=N, options=FEW.get(name)).model for key in ("a", "a", "b")
    ]
    first, again, other = (model.marginal(DOMAIN.names) for model in models)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.keeps_invariants])
def test_invariants_and_zeros_hold_exactly_in_rows(name: str) -> None:
    records = Records(DOMAIN, CODES)
    facts = Constraints(
        zeros=(NO_WORKING_CHILDREN,),
        invariants=tuple(Invariant(each, records.counts(each)) for each in (("sex", "age"), ("work",))),
    )
    found = synthesise(name, curator_of(name), facts, total=N)
    rows = Records(DOMAIN, found.model.rows(N, np.random.default_rng(3)))
    rows.check(facts)
    with pytest.raises(InfeasibleError, match="another total"):
        found.model.rows(N - 1, np.random.default_rng(3))


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not method.keeps_invariants])
def test_a_method_that_cannot_keep_invariants_says_so_before_it_spends(name: str) -> None:
    curator = curator_of(name)
    facts = Constraints(invariants=(Invariant(("sex",), Records(DOMAIN, CODES).counts(("sex",))),))
    with pytest.raises(ConfigError, match="pairs"):
        synthesise(name, curator, facts, total=N)
    assert curator.spent.total == 0


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("stability", "copula")])
def test_contradicting_facts_are_refused_before_anything_is_spent(name: str) -> None:
    curator = curator_of(name)
    everyone = Zero(("sex",), np.array([True, True]))
    with pytest.raises(InfeasibleError):
        synthesise(name, curator, Constraints(zeros=(everyone,)), total=N)
    assert curator.spent.total == 0


@pytest.mark.parametrize("name", ["pairs", "aim", "mst", "bayes-net", "generative", "mwem", "mwem-cells", "pmw"])
def test_a_budget_too_small_for_selection_is_refused_before_anything_is_spent(name: str) -> None:
    curator = curator_of(name, budget=Fraction(1, 10**13))
    with pytest.raises(BudgetError, match=r"choose blindly|must be off by"):
        synthesise(name, curator, total=N)
    assert curator.spent.total == 0


@pytest.mark.parametrize("name", ["pairs", "mwem", "mwem-cells", "pmw", "histogram", "exponential"])
def test_a_domain_too_large_names_a_method_that_fits(name: str) -> None:
    huge = Domain(tuple(f"a{k}" for k in range(12)), (10,) * 12)
    curator = curator_of(name, domain=huge, codes=np.zeros((10, 12), dtype=np.int64))
    with pytest.raises(ConfigError, match=r"mst.*stability|aim.*stability"):
        synthesise(name, curator, total=10)
    assert curator.spent.total == 0


@pytest.mark.parametrize("name", ["mst", "generative", "stability"])
def test_a_domain_beyond_any_table_is_served(name: str) -> None:
    huge = Domain(tuple(f"a{k}" for k in range(12)), (10,) * 12)
    codes = np.repeat(np.random.default_rng(2).integers(0, 10, (5, 12)), 200, axis=0)
    curator = curator_of(name, budget=Fraction(4), domain=huge, codes=codes)
    found = synthesise(name, curator, total=1000, options=FEW.get(name))
    rows = found.model.rows(100, np.random.default_rng(1))
    one = Records(huge, rows).counts(("a0",)) / 100 - Records(huge, codes).counts(("a0",)) / 1000
    assert np.abs(one).sum() < 0.15


def test_without_a_public_total_it_is_paid_for() -> None:
    found = synthesise("mst", curator_of("mst"))
    assert found.spent.steps[0].what == "total"
    assert found.model.total == pytest.approx(N, abs=40)
    shared = synthesise("mst", curator_of("mst", neighbours=Neighbours.REPLACE))
    assert shared.model.total == N
    assert shared.spent.steps[0].what != "total"


def test_wrong_names_frameworks_and_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="is not a method"):
        synthesise("magic", curator_of("pairs"), total=N)
    with pytest.raises(ConfigError, match="stated in the other"):
        synthesise("pairs", curator_of("histogram"), total=N)
    with pytest.raises(ConfigError, match="options of another"):
        synthesise("pairs", curator_of("pairs"), total=N, options=METHODS["aim"].options())


def test_records_that_break_declared_facts_are_refused_without_a_value() -> None:
    wrong = Constraints(
        zeros=(Zero(("sex",), np.array([True, False])),), invariants=(Invariant(("sex",), np.array([1, 2])),)
    )
    with pytest.raises(InputError) as error:
        Records(DOMAIN, CODES).check(wrong)
    assert len(error.value.problems) == 2
    assert repr(Records(DOMAIN, CODES)) == "Records(confidential)"
