"""The example of the literature: sex by 23 age groups, with the totals of sex and of voting age published.

Gong and Meng's (2020) table has 130 and 126 people by sex, 43 minors and 213 adults. Those sums and five of its counts
are known here (girls under 5: 8, boys under 5: 3, women 18-19: 4, women 62-64: 9, men 60-61: 11); that 130 are female
is assumed. **The other 41 counts are made up**, once, to fit the sums (girls 5-9: 6, after the published mean 5.91 of
that cell); nothing was tuned. Numbers that depend on them, such as the normaliser, therefore differ from those of the
published table: log Z = 53.03592 here, 53.17355 there, at 0.5 a cell.
"""

from __future__ import annotations

import numpy as np

from das.accounting.small_table.dataspace import TableFacts

__all__ = ["AGES", "COUNTS", "MINORS", "SEX_BY_AGE", "SOLVED"]

AGES = (
    *("0-4", "5-9", "10-14", "15-17", "18-19", "20", "21", "22-24", "25-29", "30-34", "35-39", "40-44"),
    *("45-49", "50-54", "55-59", "60-61", "62-64", "65-66", "67-69", "70-74", "75-79", "80-84", "85+"),
)
MINORS = 4
"""The first so many age groups are below voting age."""

COUNTS = (
    *(8, 6, 5, 3, 4, 2, 2, 4, 6, 5, 6, 7, 8, 9, 8, 3, 9, 4, 6, 8, 7, 5, 5),
    *(3, 7, 6, 5, 3, 2, 1, 5, 6, 7, 6, 7, 8, 9, 9, 11, 6, 4, 5, 6, 4, 3, 3),
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
    "girls 0-4, women 62-64, men 60-61": (0, AGES.index("62-64"), len(AGES) + AGES.index("60-61")),
    "girls 0-4, women 18-19, boys 0-4": (0, AGES.index("18-19"), len(AGES)),
    "girls 0-4, boys 0-4, men 18-19": (0, len(AGES), len(AGES) + AGES.index("18-19")),
}
"""Three choices of the cells to solve for; the source does not say which it made, only that the first is among them."""
