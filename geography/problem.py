"""What is wrong, where, and what to do: the form of every error message to a user."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LONGEST = 2000
"""Characters of a message that are shown."""


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

    What a file or a key is called may hold anything; a message is one line that a terminal can show:

    >>> print(Problem("geo\\n.csv", "is \\x1b[31m"))
    geo\\n.csv: is \\x1b[31m
    """

    where: str
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        tail = f"; {self.remedy}" if self.remedy else ""
        return one_line(f"{self.where}: {self.reason}{tail}")


def one_line(text: str, longest: int = LONGEST) -> str:
    """Write text so that it takes one line of any terminal: control characters by their escapes, and not too long.

    Examples
    --------
    >>> one_line("a\\tb"), one_line("abcdefghij", longest=8)
    ('a\\\\tb', 'abcde...')
    """
    cut = text if len(text) <= longest else text[: longest - 3] + "..."
    return cut if cut.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in cut)


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
        given: tuple[object, ...] = problems
        if any(isinstance(item, str) for item in given):  # its characters would be shown as problems, one a line
            raise TypeError(f"{type(self).__name__} is made of problems, not of text")
        flat: list[Problem] = []
        for item in problems:
            flat.extend([item] if isinstance(item, Problem) else item)
        self.problems = tuple(flat)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type, tuple[Problem, ...]]:
        return type(self), self.problems
