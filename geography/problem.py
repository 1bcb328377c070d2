"""What is wrong, where, and what to do: the form of every error message to a user."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with what the user gave us.

    Parameters
    ----------
    where : str
        File and row, or file and key: enough to find it.
    reason : str
        What is wrong, in one sentence, without any confidential value.
    remedy : str
        What the user can do about it.

    Examples
    --------
    >>> print(Problem("geo.csv, row 3", "tract '12' has no parent", "give its county"))
    geo.csv, row 3: tract '12' has no parent; give its county
    """

    where: str
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        tail = f"; {self.remedy}" if self.remedy else ""
        return f"{self.where}: {self.reason}{tail}"


class ProblemsFound(Exception):
    """Everything that was found wrong, at once.

    Examples
    --------
    >>> raise ProblemsFound(Problem("geo.csv", "no rows"))
    Traceback (most recent call last):
    geography.problem.ProblemsFound: geo.csv: no rows
    """

    exit_code = 3

    def __init__(self, *problems: Problem | Iterable[Problem]) -> None:
        flat: list[Problem] = []
        for item in problems:
            flat.extend([item] if isinstance(item, Problem) else item)
        self.problems = tuple(flat)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type, tuple[Problem, ...]]:
        return type(self), self.problems
