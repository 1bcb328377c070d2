"""Where people are: the spine of geounits, and the areas that do not lie on it.

A `Spine` is a tree of geounits as arrays, level by level. It comes from fixed-width geocodes (`from_geocodes`) or from
a crosswalk file (`read_crosswalk`); branches may skip levels or end early. `Areas` are sets of leaves off the spine
(`read_areas`). Both tabulate leaf values. What is wrong with an input is reported all at once, as `ProblemsFound`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geography.areas import Areas, read_areas
    from geography.crosswalk import from_edges, from_wide, read_crosswalk
    from geography.geocode import from_geocodes
    from geography.problem import Problem, ProblemsFound
    from geography.reading import column_names, read_text_columns
    from geography.spine import Spine, Tier

__all__ = [
    "Areas",
    "Problem",
    "ProblemsFound",
    "Spine",
    "Tier",
    "column_names",
    "from_edges",
    "from_geocodes",
    "from_wide",
    "read_areas",
    "read_crosswalk",
    "read_text_columns",
]

_HOME = {
    "areas": ("Areas", "read_areas"),
    "crosswalk": ("from_edges", "from_wide", "read_crosswalk"),
    "geocode": ("from_geocodes",),
    "problem": ("Problem", "ProblemsFound"),
    "reading": ("column_names", "read_text_columns"),
    "spine": ("Spine", "Tier"),
}


def __getattr__(name: str) -> Any:
    """Import a module when a name of it is first used: an error message need not wait for SciPy."""
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"geography.{module}"), name)
    raise AttributeError(f"module 'geography' has no attribute {name!r}")
