"""A generated state, realistic in shape: a population to run a release on, shipped as code and not as data."""

from __future__ import annotations

from das.demo.people import generate
from das.demo.population import CENRACE, HHGQ, HISPANIC, VOTINGAGE, Population

__all__ = ["CENRACE", "HHGQ", "HISPANIC", "VOTINGAGE", "Population", "generate"]
