"""Page templates: escaped, strict about missing values, without stray blank lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

__all__ = ["page_template"]


def page_template(package: str, name: str, filters: Mapping[str, Callable[..., Any]] | None = None) -> Template:
    """Load the template of a page that lies beside a package's modules.

    Examples
    --------
    >>> filters = dict.fromkeys(("named", "fact", "hundredths", "quoted"), str)
    >>> page_template("das.report", "privacy.html.j2", filters).name
    'privacy.html.j2'
    """
    environment = _environment(package)
    environment.filters |= filters or {}
    return environment.get_template(name)


@cache
def _environment(package: str) -> Environment:
    return Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
