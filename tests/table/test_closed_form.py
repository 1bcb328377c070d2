"""The formulas against the tree and against plain sums."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.accounting.conditioning import conditioned_geometric, geometric_loss, geometric_vertex_limit
from das.congenial.tree import Tree
from das.errors import ConfigError
from das.noise import DiscreteLaplace
from das.table.closed_form import gamma_examples, two_cell_law, two_cell_log_z, two_cell_loss, vertex_loss


@settings(max_examples=30)
@given(epsilon=st.sampled_from(["1/20", "1/4", "1/2", "1", "2"]), total=st.integers(1, 40), data=st.data())
def test_two_cells_agree_with_the_tree(epsilon, total, data):
    first = data.draw(st.integers(0, total))
    noise = DiscreteLaplace(1 / Fraction(epsilon))
    tree = Tree.star(2, noise, total=total)
    space = [[s, total - s] for s in range(total + 1)]
    law = two_cell_law(float(Fraction(epsilon)), total, first)
    assert law.sum() == pytest.approx(1.0, abs=1e-13)
    np.testing.assert_allclose(np.exp(tree.log_density(space, [first, total - first])), law, rtol=1e-11)
    scaled = tree.log_normalizer([first, total - first]) - 2 * np.log(noise.pmf(0))
    assert scaled == pytest.approx(two_cell_log_z(float(Fraction(epsilon)), total, first), abs=1e-11)


@pytest.mark.parametrize(("first", "other"), [(5, 6), (0, 1), (1, 0), (0, 7)])
def test_two_cell_loss_is_the_enumerated_one(first, other):
    space = [[s, 20 - s] for s in range(21)]
    exact = geometric_loss(space, [first, 20 - first], [other, 20 - other], 0.5)
    assert two_cell_loss(0.5, 20, first, other) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize(("cells", "total"), [(2, 6), (3, 5), (4, 4), (5, 3)])
def test_vertex_loss_is_the_largest_there_is(cells, total):
    space = [list(s) for s in product(range(total + 1), repeat=cells) if sum(s) == total]
    corner = [total] + [0] * (cells - 1)
    moved = [total - 1, 1] + [0] * (cells - 2)
    vertex = vertex_loss(0.5, cells, total)
    assert vertex == pytest.approx(geometric_loss(space, corner, moved, 0.5), abs=1e-12)
    assert vertex <= conditioned_geometric(Fraction(1, 2), 2, "equalities and box").cost
    for x in space:
        for a, b in product(range(cells), repeat=2):
            if a != b and x[a]:
                other = [v - (k == a) + (k == b) for k, v in enumerate(x)]
                assert geometric_loss(space, x, other, 0.5) <= vertex + 1e-12


@pytest.mark.parametrize("cells", [3, 8])
def test_vertex_loss_tends_to_its_limit(cells):
    assert vertex_loss(0.5, cells, 80) - 1.0 == pytest.approx(geometric_vertex_limit(0.5, cells), abs=1e-9)


def test_gamma_depends_on_what_a_step_is():
    table = {(e.conditioned_on, e.step): e for e in gamma_examples(1.0)}
    assert table["nothing", "substitution"].gamma == 0.0
    assert table["the whole table", "substitution"].gamma == -1.0
    consistent = [e for (what, step), e in table.items() if what == "the total" and step != "mixed"]
    assert [e.gamma for e in consistent] == [0.0, 0.0]
    assert table["the total", "mixed"].gamma == -0.5
    # The loss itself does not: equality alone costs what the unconditioned noise costs for the move.
    assert {e.loss for (what, _), e in table.items() if what == "the total"} == {1.0}
    far = two_cell_loss(0.5, 2000, 1000, 1001)  # far from zero non-negativity plays no part
    assert far == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    "call",
    [lambda: two_cell_log_z(0.0, 3, 1), lambda: two_cell_log_z(1.0, 3, 4), lambda: vertex_loss(1.0, 1, 3)],
)
def test_what_makes_no_sense_is_refused(call):
    with pytest.raises(ConfigError):
        call()
