"""A believable state that never existed: people to run a release on, shipped as code and not as data."""

from __future__ import annotations

from das.demo.people import generate
from das.demo.population import CENRACE, HHGQ, HISPANIC, VOTINGAGE, Area, Population

__all__ = ["CENRACE", "HHGQ", "HISPANIC", "VOTINGAGE", "Area", "Population", "generate"]
