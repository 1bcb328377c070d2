"""A disclosure avoidance system for census-style counts: differential privacy, exact noise, a privacy statement.

>>> import das
>>> plan = das.load("config/demo.toml")          # nothing is read, nothing is spent
>>> plan.levels
('state', 'county', 'tract', 'block_group', 'block')

``das.run(plan, out="...")`` runs the release and ``das.open("...")`` opens one that is there.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from das.api import Release, account, check, evaluate, load, open, run, simulate, tune

__all__ = ["Release", "account", "check", "evaluate", "load", "open", "run", "simulate", "tune"]


def __getattr__(name: str) -> Any:
    """Load the API when it is first used, so that the command line need not wait for it."""
    if name not in __all__:
        raise AttributeError(f"module 'das' has no attribute {name!r}")
    from das import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """Name what people use, for completion in notebooks; packages are found by their import."""
    return sorted(__all__)
