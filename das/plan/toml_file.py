"""A TOML file to plain data: whatever the file holds, it is read or refused with a message, and nothing hangs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from das.errors import ConfigError, Problem

__all__ = ["depth", "read_toml"]

MOST_BYTES = 16 << 20
"""What a config may hold; the demographic presets take a hundredth of it."""

DEEPEST = 50
"""How deeply the lists and tables of a config may nest; its settings need five levels."""

_STRINGS = re.compile(
    r'"{3}(?:\\.|[^\\])*?"{3}'  # a long string with escapes
    r"|'{3}.*?'{3}"  # a long string without
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*",  # a comment
    re.DOTALL,
)


def read_toml(path: Path, *, missing: Problem | None = None) -> dict[str, Any]:
    """Read a file that a person wrote.

    Parameters
    ----------
    path : Path
        The file.
    missing : Problem, optional
        What to say if there is none.

    Raises
    ------
    ConfigError
        It is missing, cannot be read, or is not TOML that Python can hold.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(Problem(str(path), "is too long to be a config", "name the config, not a file of data"))
        text = content.decode()
        if depth(text) > DEEPEST:
            raise RecursionError
        return tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(missing or Problem(str(path), "there is no such file", "name another")) from None
    except IsADirectoryError:
        raise ConfigError(Problem(str(path), "is a folder", "name the config file in it")) from None
    except OSError as error:
        raise ConfigError(Problem(str(path), f"cannot be read ({error.strerror})")) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        reason = f"is not valid TOML: line {line} is not UTF-8 text"
        raise ConfigError(Problem(path.name, reason, "save it as UTF-8")) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(Problem(path.name, f"is not valid TOML: {error}", _decimal_comma(text, str(error)))) from None
    except ValueError:  # the text is TOML, but Python reads no number of thousands of digits, nor every date
        reason = "holds a number or a date that cannot be read"
        raise ConfigError(Problem(path.name, reason, "look for one of very many digits")) from None
    except RecursionError:
        raise ConfigError(Problem(path.name, "nests tables or lists too deeply", "write them side by side")) from None


def _decimal_comma(text: str, error: str) -> str:
    """Return the remedy where the line that an error names has a number such as 0,5; nothing otherwise.

    Examples
    --------
    >>> _decimal_comma("epsilon = 0,5", "Expected newline (at line 1, column 12)")
    'a decimal comma? write a fraction in quotes, for example "1/2"'
    """
    found = re.search(r"at line (\d+)", error)
    line = text.splitlines()[int(found[1]) - 1] if found else ""
    comma = re.search(r"=\s*\d+,\d", line)
    return 'a decimal comma? write a fraction in quotes, for example "1/2"' if comma else ""


def depth(text: str) -> int:
    """How deeply brackets nest outside of strings and comments.

    The parser descends into each; at the interpreter's own limit a destructor may fail beside it, on standard error.

    >>> depth("x = [[{a = [1]}, [2]]]  # [")
    4
    """
    deep = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", _STRINGS.sub("", text)):
        deep = deep + 1 if bracket in "[{" else max(0, deep - 1)
        deepest = max(deepest, deep)
    return deepest
