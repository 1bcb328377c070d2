"""Plans that are released as one product: what they cost together."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from das.accounting.conversion import epsilon_upper
from das.errors import ConfigError, Problem
from das.exact import decimal_upper, delta_text, quoted
from das.plan import presets
from das.plan.load import load
from das.plan.plan import Plan

__all__ = ["Product", "product_of"]


@dataclass(frozen=True, kw_only=True)
class Product:
    """A release and those that go with it; costs of independent noise add up (Bun and Steinke 2016, Lemma 1.7)."""

    names: tuple[str, ...]
    framework: str
    budget: Fraction
    delta: Fraction

    @property
    def epsilon(self) -> float:
        """Nominal epsilon of all of them together, rounded up."""
        return decimal_upper(self.budget) if self.framework == "pure" else epsilon_upper(self.budget, self.delta)

    def to_json(self) -> dict[str, Any]:
        """Describe the product for machines."""
        return {"releases": list(self.names), "budget": str(self.budget), "epsilon": self.epsilon}

    def text(self) -> str:
        """Say what the product costs, in one line."""
        joint = " + ".join(self.names)
        if self.framework == "pure":
            return f"together, {joint}: epsilon = {self.budget} = {quoted(self.epsilon)}"
        return (
            f"together, {joint}: rho = {self.budget} = {quoted(self.budget)}, "
            f"nominal epsilon {quoted(self.epsilon)} at delta {delta_text(self.delta)}"
        )


def product_of(plan: Plan) -> Product | None:
    """Find what is released with a plan (``[release] with``); ``None`` if it stands alone.

    Examples
    --------
    >>> product = product_of(load("dhc-2020-units-us"))
    >>> product.names, product.budget, product.epsilon < 33.29
    (('dhc-2020-units-us', 'dhc-2020-tenvacgq-us'), Fraction(15401, 2000), True)
    >>> product_of(load("pl94-2020")) is None
    True
    """
    others = [load(name if name in presets.names() else plan.folder / name) for name in plan.settings.release.with_]
    if not others:
        return None
    plans = (plan, *others)
    for other in others:
        if (other.framework, other.settings.privacy.neighbours) != (plan.framework, plan.settings.privacy.neighbours):
            reason = f"{other.name} has another framework or relation than {plan.name}"
            raise ConfigError(Problem(f"{plan.source.name}, release.with", reason, "only costs of one kind add up"))
    return Product(
        names=tuple(each.name for each in plans),
        framework=plan.framework,
        budget=sum((each.budget for each in plans), Fraction(0)),
        delta=min(each.settings.privacy.delta for each in plans),
    )
