"""Gong's published sex-by-age table: 46 counts, with the totals of sex and of voting age public.

The counts are the confidential table of Gong (2020), in the talk "Towards Good Statistical Inference from
Differentially Private Data", example "sex-by-age contingency table with invariants". Its public facts are 130 women and
girls, 126 men and boys, 43 minors, 213 adults, 256 people. With double-geometric noise of epsilon 0.5 a cell, on
nonnegative integers, the log normaliser is 53.17355368275986, and an independence sampler with proposals of 0.6 accepts
about 1.68 %.
``tests/data/vectors/sex_by_age.json`` has the same figures.
"""

from __future__ import annotations

import numpy as np

from das.accounting.small_table.dataspace import TableFacts

__all__ = ["AGES", "COUNTS", "MINORS", "SEX_BY_AGE", "SOLVED"]

AGES = (
    *("<5", "6-10", "11-15", "16-17", "18-19", "20", "21", "22-24", "25-29", "30-34", "35-39", "40-44"),
    *("45-49", "50-54", "55-59", "60-61", "62-64", "65-66", "67-69", "70-74", "75-79", "80-84", "85+"),
)
"""The age groups, labelled as in the source."""

MINORS = 4
"""The first so many age groups are below voting age."""

COUNTS = (
    *(8, 6, 3, 6, 4, 4, 4, 8, 5, 7, 7, 6, 1, 5, 4, 4, 9, 6, 2, 8, 8, 8, 7),
    *(3, 4, 5, 8, 6, 4, 5, 5, 5, 6, 10, 7, 3, 2, 5, 11, 6, 4, 7, 4, 5, 3, 8),
)
"""Women and girls by age, then men and boys."""

_FEMALE = tuple(int(cell < len(AGES)) for cell in range(2 * len(AGES)))
_ADULT = tuple(int(cell % len(AGES) >= MINORS) for cell in range(2 * len(AGES)))

SEX_BY_AGE = TableFacts(
    cells=len(COUNTS),
    invariants=(_FEMALE, _ADULT),
    values=(int(np.dot(_FEMALE, COUNTS)), int(np.dot(_ADULT, COUNTS))),
    records=sum(COUNTS),
)

SOLVED = {
    "girls under 5, women 62-64, men 60-61": (0, AGES.index("62-64"), len(AGES) + AGES.index("60-61")),
    "girls under 5, women 18-19, boys under 5": (0, AGES.index("18-19"), len(AGES)),
    "girls under 5, boys under 5, men 18-19": (0, len(AGES), len(AGES) + AGES.index("18-19")),
}
"""Three choices of the cells to solve for; the source does not say which it made, only that the first is among them."""
