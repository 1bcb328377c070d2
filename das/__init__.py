"""A disclosure avoidance system: exact noise, honest accounting, counts that conform.

>>> import das
>>> plan = das.load("config/demo.toml")          # nothing is read, nothing is spent
>>> plan.levels
('state', 'county', 'tract', 'block_group', 'block')

``das.run(plan, out="...")`` runs the release and ``das.open("...")`` opens one that is there.
"""

from das.api import Release, load, open, run

__all__ = ["Release", "load", "open", "run"]
