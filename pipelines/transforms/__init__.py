"""Composite transforms on PCollections, for pipelines of one's own: the parts of a release without its folder.

``CountGeounits``, ``MeasureGeounits``, ``PoolEstimates``, ``EstimateFamilies`` and ``CongenialDraw`` call the functions
that the stages of ``das run`` call, so that with the same plan and key they give the same numbers.
``docs/how-to/beam.md`` puts them into another pipeline.

None of them reads a folder of ``das run``, keeps a ledger or writes a statement. Whoever runs a mechanism
(``MeasureGeounits``, ``CongenialDraw``) spends the plan's budget and keeps the account of it.
"""

from pipelines.transforms.congenial import CongenialDraw
from pipelines.transforms.elements import Answers, Estimated, Geounit, PublicFacts, protected_counts, true_counts
from pipelines.transforms.estimate import EstimateFamilies, PoolEstimates
from pipelines.transforms.measure import CountGeounits, MeasureGeounits

__all__ = [
    "Answers",
    "CongenialDraw",
    "CountGeounits",
    "EstimateFamilies",
    "Estimated",
    "Geounit",
    "MeasureGeounits",
    "PoolEstimates",
    "PublicFacts",
    "protected_counts",
    "true_counts",
]
