"""A released number and a model of it, as a small TOML file.

::

    [released]
    value = 37.4
    mechanism = "laplace"        # laplace, gaussian, discrete-laplace, discrete-gaussian
    scale = "5"                  # scale of a Laplace, sigma2 of a Gaussian law
    provenance = "measurement"   # what was done to the number; anything else is refused

    [model]
    name = "poisson-gamma"       # poisson-gamma, binomial-beta, normal
    shape = 25
    rate = 1

Instead of value and mechanism, ``release``, ``level``, ``geocode`` and ``answer`` name a measurement of a release.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from das.errors import ConfigError, Problem
from das.inference.additive_noise import AdditiveNoise, gaussian, laplace, noise_of
from das.inference.measured_answers import measured_statistic
from das.inference.models import Model, model_of
from das.inference.statistic import MEASUREMENT, NoisyStatistic, raw
from das.noise.mechanisms import mechanism_of
from das.plan.toml_file import read_toml

__all__ = ["mechanism_named", "read_problem"]

PARAMETERS = {
    "laplace": "scale",
    "gaussian": "sigma2",
    "discrete-laplace": "scale",
    "discrete-gaussian": "sigma2",
}
"""Mechanisms by name, and the parameter of each."""


def mechanism_named(name: str, parameter: object) -> AdditiveNoise:
    """Make the noise that a file or an option names.

    Examples
    --------
    >>> mechanism_named("discrete-laplace", "5/2").name
    'discrete-laplace(scale=5/2)'
    >>> mechanism_named("staircase", 1)
    Traceback (most recent call last):
    das.errors.ConfigError: mechanism: 'staircase' has no density here; there are laplace, gaussian, ...
    """
    if name not in PARAMETERS:
        raise ConfigError(Problem("mechanism", f"{name!r} has no density here", f"there are {', '.join(PARAMETERS)}"))
    try:
        exact = Fraction(str(parameter))
    except (ValueError, ZeroDivisionError):
        raise ConfigError(Problem(PARAMETERS[name], f"{parameter!r} is not a number", 'write "5/2"')) from None
    if name.startswith("discrete"):
        return noise_of(mechanism_of(PARAMETERS[name], str(exact)))
    return laplace(float(exact)) if name == "laplace" else gaussian(float(exact))


def read_problem(path: Path) -> tuple[NoisyStatistic, Model]:
    """Read the released number and its model."""
    content = read_toml(path)
    missing = [Problem(f"{path}: [{name}]", "is missing") for name in ("released", "model") if name not in content]
    if missing:
        raise ConfigError(*missing)
    return _released(content["released"], path.parent), model_of(content["model"])


def _released(content: Mapping[str, Any], folder: Path) -> NoisyStatistic:
    named = {"release", "level", "geocode", "answer"}
    if "release" in content:
        _keys(content, named)
        return measured_statistic(
            folder / content["release"], level=content["level"], geocode=content["geocode"], answer=content["answer"]
        )
    parameter = PARAMETERS.get(str(content.get("mechanism")), "scale")
    _keys(content, {"value", "mechanism", parameter}, {"provenance"})
    noise = mechanism_named(str(content["mechanism"]), content[parameter])
    return raw(NoisyStatistic(value=content["value"], noise=noise, provenance=content.get("provenance", MEASUREMENT)))


def _keys(content: Mapping[str, Any], needed: set[str], optional: set[str] | None = None) -> None:
    missing = [Problem(f"released.{key}", "is missing") for key in sorted(needed - content.keys())]
    other = content.keys() - needed - (optional or set())
    unknown = [Problem(f"released.{key}", "is not known", f"known are {', '.join(sorted(needed))}") for key in other]
    if missing or unknown:
        raise ConfigError(*missing, *unknown)
