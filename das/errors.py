"""One exception per kind of failure; each knows its exit code and never carries a confidential value."""

from __future__ import annotations

from geography.problem import Problem, ProblemsFound

__all__ = [
    "BudgetError",
    "ConfigError",
    "InfeasibleError",
    "InputError",
    "Interrupted",
    "NothingToPromise",
    "Problem",
    "ProblemsFound",
    "UsageError",
    "WindowsTooNarrow",
]


class UsageError(ProblemsFound):
    """The command itself, or the folder it names, does not fit."""

    exit_code = 2


class ConfigError(ProblemsFound):
    """The config file cannot become a plan."""

    exit_code = 2


class InputError(ProblemsFound):
    """The data or the geography cannot be read as declared."""

    exit_code = 3


class InfeasibleError(ProblemsFound):
    """The declared public facts contradict each other."""

    exit_code = 4


class NothingToPromise(InfeasibleError):
    """The public facts leave no two data sets to compare, so no promise can be made; nothing was drawn."""


class WindowsTooNarrow(InfeasibleError):
    """The congenial sampler asks for wider windows before it draws anything; a run widens them and never shows this."""


class BudgetError(ProblemsFound):
    """The data set's budget, or the ledger that guards it, forbids this."""

    exit_code = 5


class Interrupted(ProblemsFound):
    """The run stopped midway; the same command continues it."""

    exit_code = 6
