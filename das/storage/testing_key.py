"""Testing keys: noise that anybody who guesses a text can remove, and so no noise for data that need protection."""

from __future__ import annotations

from das.errors import Problem, UsageError
from das.plan.plan import Plan

__all__ = ["UNPROTECTED", "is_unprotected"]

UNPROTECTED = "made with a testing key from confidential data; anybody who guesses the key can remove the noise"
"""What the statement, the manifest and the ledger say of such a run."""


def is_unprotected(plan: Plan, testing_key: str | None, *, allowed: bool) -> bool:
    """Whether a run would draw noise that can be guessed for data that the config does not declare harmless.

    Parameters
    ----------
    plan : Plan
        Its ``input.data`` declares the data.
    testing_key : str or None
        The text of the testing key, if there is one.
    allowed : bool
        Whether somebody asked for it in so many words (``--unprotected``). Everything that the run writes is then
        private, and says what it is.

    Raises
    ------
    UsageError
        It would, and nobody did.
    """
    data = plan.settings.input.data
    if testing_key is None:
        if allowed:
            raise UsageError(Problem("--unprotected", "is about runs with --testing-key", "leave it out"))
        return False
    if data != "confidential":
        return False
    if not allowed:
        reason = "the data are not declared public or generated, and anybody who guesses the key can remove the noise"
        remedy = (
            'if they need no protection, say `data = "generated"` or `data = "public"` in [input]; otherwise leave the '
            "key out, or add --unprotected, and keep everything that is written as confidential as the data"
        )
        raise UsageError(Problem("--testing-key", reason, remedy))
    return True
