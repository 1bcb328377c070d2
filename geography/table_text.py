"""What may stand in a published table: text that every reader takes for text, a spreadsheet too.

A cell that begins with ``=``, ``+``, ``-`` or ``@`` is computed when a CSV file is opened in a spreadsheet, and may
then call programs or send other cells away (OWASP, "CSV Injection"). The usual escape, an apostrophe before the cell,
would change a label or a geocode, so that the file no longer joins with others. Labels and geocodes are declared before
anything is published: those that would be formulas are refused where they are declared, and a published file holds
every label as it was written.
"""

from __future__ import annotations

import re

__all__ = ["CONTROL", "FORMULA", "why_not_in_a_table"]

FORMULA = re.compile(
    r"""
    (?: ^ | [,;|\t\r\n"] ) \s*       # where a cell may begin: a spreadsheet may split at any of these
    (?: [=@＝＠]                     # the wide forms too, which some spreadsheets take for the plain ones
      | [+＋－-] (?! \s*             # a sign, but not that of a plain number (-5, +64, -1.5, +3 %), nor a lone dash
            (?: \d+ (?:[.,]\d+)? \s* %? )? \s* (?: $ | [,;|\t\r\n"] ) )
    )
    """,
    re.VERBOSE,
)
"""Is found in a text that is, or holds, a formula for some spreadsheet."""

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Is found in a text with a control character, a line end, or half a character."""


def why_not_in_a_table(text: str) -> str:
    """Say why a text may not stand in a published table; blank if it may.

    Examples
    --------
    >>> why_not_in_a_table("=1+1")
    'is a formula to a spreadsheet; begin it with a letter or a digit'
    >>> [bool(why_not_in_a_table(text)) for text in ("@SUM(A1)", "-2+3", "+a", "a;=1+1", "a\\tb")]
    [True, True, True, True, True]
    >>> any(why_not_in_a_table(text) for text in ("<5", "65+", "-5", "+64", "-", "0-14", "a-b", "a = b", "a+b", ""))
    False
    """
    if CONTROL.search(text):
        return "holds a control character; remove it"
    if FORMULA.search(text):
        return "is a formula to a spreadsheet; begin it with a letter or a digit"
    return ""
