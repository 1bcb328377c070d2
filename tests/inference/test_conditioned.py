"""Posterior intervals of counts that were drawn to conform, against the posterior by enumeration of all tables."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import das
from das.congenial.tree import UNBOUNDED, Tree
from das.demo.starter import write_starter
from das.errors import UsageError
from das.inference.intervals import conditioned
from das.inference.intervals.conditioned import TreeOfRelease, posterior_draws, shortest_limits
from das.inference.intervals.public_files import PublicFiles
from das.noise import DiscreteGaussian, RunKey
from das.plan.tree_of_counts import tree_of

TOTAL = 9
NOISE = DiscreteGaussian(3)


def star(published: list[int]) -> TreeOfRelease:
    """One total, known exactly, and three cells with noise; published as given."""
    size = len(published)
    return TreeOfRelease(
        parent=np.array([-1, *[0] * size]),
        noise=(None, *[NOISE] * size),
        lower=np.array([TOTAL, *[0] * size]),
        upper=np.array([TOTAL, *[UNBOUNDED] * size]),
        published=np.array([sum(published), *published]),
        leaf_unit=np.array([-1, *range(size)]),
        leaf_cell=np.array([-1, *[0] * size]),
    )


def tables(cells: int) -> np.ndarray:
    return np.array([t for t in product(range(TOTAL + 1), repeat=cells) if sum(t) == TOTAL])


@pytest.mark.parametrize("published", [[9, 0, 0], [4, 3, 2]])
def test_draws_have_the_posterior_of_all_tables_by_enumeration(published: list[int]) -> None:
    tree = Tree.star(3, NOISE, total=TOTAL)
    every = tables(3)
    exact = np.exp([float(tree.log_density(published, x)) for x in every])
    exact /= exact.sum()
    draws, effective = posterior_draws(star(published), np.array([1, 2, 3]), "test", 3000)
    assert (draws.sum(axis=1) == TOTAL).all()
    found = np.array([(draws == x).all(axis=1).mean() for x in every])
    error = np.sqrt(exact * (1 - exact) / effective)
    assert (np.abs(found - exact) < 5 * error + 1e-4).all()
    # Without the weights 1 / Z(x) the draws would be those of the mechanism, which are another distribution.
    alone = np.exp([float(tree.log_density(x, published)) for x in every])
    assert (np.abs(found - alone) > 5 * error + 1e-4).any()


def test_intervals_cover_on_average_over_the_prior() -> None:
    """Every true table as likely as every other; the posterior of each outcome by enumeration. A flat average."""
    tree, every = Tree.star(3, NOISE, total=TOTAL), tables(3)
    joint = np.exp(np.array([tree.log_density(every, x) for x in every]))  # true x published
    held = 0.0
    for at, column in enumerate((joint / joint.sum(axis=0)).T):
        draws = np.repeat(every[:, 0], np.rint(column * 20_000).astype(int)).astype(float)
        low, high = shortest_limits(draws[:, None], 0.95)
        held += float(joint[(every[:, 0] >= low[0]) & (every[:, 0] <= high[0]), at].sum())
    assert 0.95 <= held / len(every) < 0.985


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> das.Release:
    home = tmp_path_factory.mktemp("conforming") / "country"
    config = write_starter(home)
    text = config.read_text()
    start, end = text.index("total = "), text.index("[[invariant]]")
    config.write_text(text[:start] + 'detailed = "1"\n\n' + text[end:] + '\n[estimate]\nmethod = "congenial"\n')
    return das.run(das.load(config), out=home / "out", testing_key="one")


def test_the_tree_of_a_release_is_that_of_its_mechanism(release: das.Release) -> None:
    tree = TreeOfRelease.of(PublicFiles(release.folder))
    inner = np.unique(tree.parent[tree.parent >= 0])
    summed = np.zeros(len(tree.parent), dtype=np.int64)
    np.add.at(summed, tree.parent[tree.parent >= 0], tree.published[tree.parent >= 0])
    assert (summed[inner] == tree.published[inner]).all()
    files = PublicFiles(release.folder)
    assert len(tree.parent) == tree_of(files.plan).counts(files.spine)
    assert (tree.leaf_cell[np.setdiff1d(np.arange(len(tree.parent)), inner)] >= 0).all()
    assert len(np.unique(tree.part_of)) >= 2  # provinces have exact totals: one has nothing to do with the other


def test_a_conforming_release_answers_from_the_posterior(release: das.Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditioned, "DRAWS", 150)
    monkeypatch.setattr(conditioned, "FEWEST", 10)
    draw = conditioned.posterior_draws
    monkeypatch.setattr(conditioned, "posterior_draws", lambda tree, nodes, name: draw(tree, nodes, name, 150))
    found = release.query("sex", area=["village:N11", "province:N"])
    rows = found.to_pandas()
    assert "posterior" in found.interval
    assert (rows["low"] <= rows["high"]).all()
    assert rows["low"].min() >= 0
    assert rows.loc[rows["place"] == "province:N", "estimate"].sum() == pytest.approx(
        rows.loc[rows["place"] == "province:N", "count"].sum()
    )
    with pytest.raises(UsageError, match=r"--interval.*drawn to conform"):
        release.query(area="village:N11", interval="feldman-cousins")
    monkeypatch.setattr(conditioned, "LARGEST_PART", 20)
    with pytest.raises(
        UsageError, match=r"needs the posterior of .* coupled counts.*no village can be asked about.*das simulate"
    ):
        release.query(area="village:N11")


def test_ratios_are_those_of_the_draws(release: das.Release, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numerator and denominator of one draw belong together; where a denominator may be zero, no ratio is given."""
    drawn = np.array([[3, 1, 4, 0], [2, 2, 6, 0], [1, 3, 5, 2], [2, 2, 5, 1]])
    seen: list[np.ndarray] = []

    def draws(tree: TreeOfRelease, nodes: np.ndarray, name: str) -> tuple[np.ndarray, int]:
        seen.append(nodes)
        return np.tile(drawn, (1, len(nodes)))[:, : len(nodes)], 4

    monkeypatch.setattr(conditioned, "posterior_draws", draws)
    found = release.query("sex", area="village:N11", over={}, confidence=0.5)
    tree, sexes = TreeOfRelease.of(PublicFiles(release.folder)), das.load(release.folder.config).schema
    values = np.tile(drawn, (1, len(seen[0])))[:, : len(seen[0])].astype(float)
    women = (
        np.unravel_index(tree.leaf_cell[seen[0]], [len(a.labels) for a in sexes.attributes])[
            [a.name for a in sexes.attributes].index("sex")
        ]
        == 0
    )
    shares = values[:, women].sum(axis=1) / values.sum(axis=1)
    row = found.to_pandas().iloc[0]
    assert found.is_ratio
    assert found.asked == "sex / anybody"
    assert row["estimate"] == pytest.approx(shares.mean())
    assert row["std_dev"] == pytest.approx(shares.std())
    assert row["low"] in shares
    monkeypatch.setattr(conditioned, "posterior_draws", lambda tree, nodes, name: (0 * draws(tree, nodes, name)[0], 4))
    nothing = release.query("sex", area="village:N11", over={})
    assert nothing.to_pandas()[["estimate", "std_dev", "low", "high"]].isna().all(axis=None)
    assert "no ratio is given where its denominator may be zero" in nothing.notes


@pytest.mark.slow
def test_a_flat_prior_does_not_hold_the_total_of_mostly_empty_cells() -> None:
    """Two cells of ten people and eighteen empty ones: why large trees are refused. In a full table it holds it."""
    held = {}
    for name, cells in (("sparse", [10, 10, *[0] * 18]), ("full", [10] * 20)):
        tree = Tree.star(20, DiscreteGaussian(9), total_noise=DiscreteGaussian(4))
        inside = 0
        for run in range(20):
            key = RunKey.for_testing(f"{name} {run}").streams(b"")
            published, again = (key.bundle([("tree", "", each, "draw")]) for each in ("published", "posterior"))
            drawn = tree.draw(tree.draw(cells, published, 1).counts[0, tree.leaves], again, 250).counts
            logs = -np.array([tree.log_normalizer(table) for table in drawn[:, tree.leaves]])
            weight = np.exp(logs - logs.max())
            chosen = np.random.default_rng(run).choice(250, 250, p=weight / weight.sum())
            low, high = shortest_limits(drawn[chosen, :1].astype(float), 0.95)
            inside += bool(low[0] <= sum(cells) <= high[0])
        held[name] = inside
    assert held["sparse"] <= 16
    assert held["full"] >= 17


def test_too_few_effective_draws_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditioned, "FEWEST", 10**6)
    with pytest.raises(UsageError, match="effective ones are left"):
        posterior_draws(star([4, 3, 2]), np.array([1]), "test", 200)


def test_the_same_question_gives_the_same_answer() -> None:
    one, two = (posterior_draws(star([4, 3, 2]), np.array([1, 2]), "test", 500)[0] for _ in range(2))
    assert (one == two).all()


def test_of_equally_short_intervals_the_one_with_most_draws_is_taken() -> None:
    """A symmetric posterior of whole numbers has a symmetric interval, whole or halved."""
    draws = np.repeat(np.arange(9.0), [1, 8, 28, 56, 70, 56, 28, 8, 1])[:, None]
    low, high = shortest_limits(np.hstack([draws, draws / 2]), 0.5)
    assert low.tolist() == [3.0, 1.5]
    assert high.tolist() == [5.0, 2.5]
