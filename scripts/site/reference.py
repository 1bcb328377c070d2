"""Reference pages that are generated: config keys from the settings classes, options from the command line."""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import click
from keys import KEYS
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

__all__ = ["keys_page", "options_page", "pages", "sections"]


def pages() -> dict[str, str]:
    """All generated pages, by address."""
    return {"reference/keys.md": keys_page(), "reference/options.md": options_page()}


def sections() -> Iterator[tuple[str, bool, type[BaseModel]]]:
    """Every section of a config: its name, whether it may occur several times, and its class."""
    from das.plan.settings import Settings

    def walk(prefix: str, model: type[BaseModel]) -> Iterator[tuple[str, bool, type[BaseModel]]]:
        for name, field in model.model_fields.items():
            inner, several = _section_of(field.annotation)
            if inner is not None:
                path = f"{prefix}{field.alias or name}"
                yield path, several, inner
                yield from walk(f"{path}.", inner)

    yield from walk("", Settings)


def keys_page() -> str:
    """Write the table of all config keys."""
    lines = [
        "# Every key of a config",
        "",
        "This page is generated from the classes that read a config.",
        "[The configuration file](../configuration.md) shows the keys at work.",
        'A fraction is exact and in quotes: `"1/10"`. A whole number may stand without quotes.',
        "An unknown key is an error.",
    ]
    for name, several, model in sections():
        lines += ["", f"## {f'[[{name}]]' if several else f'[{name}]'}", "", _first_sentence(model), ""]
        lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        for field_name, field in model.model_fields.items():
            key = field.alias or field_name
            meaning = KEYS.get(name, {}).get(key, "")
            lines.append(f"| `{key}` | {_cell(type_text(field.annotation))} | {_default(field)} | {_cell(meaning)} |")
    return "\n".join(lines) + "\n"


def options_page() -> str:
    """Write every command with its arguments and options."""
    from das import cli

    lines = [
        "# Every command and option",
        "",
        "This page is generated from the command line. [Commands](../commands.md) says which one to use when.",
        "Every command also has `--help`; `--debug` shows the traceback of a failure.",
    ]
    for path, command in _commands("das", cli.das):
        if isinstance(command, click.Group) and path == "das":
            continue
        context = click.Context(command, info_name=path)
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        help_text = re.sub(r"``(.+?)``", r"`\1`", inspect.cleandoc(command.help or "").replace("\b", ""))
        lines += ["", f"## {path}", "", help_text, "", "```text", usage, "```"]
        options = [option for option in command.params if isinstance(option, click.Option)]
        if options:
            lines += ["", "| option | meaning |", "|---|---|"]
            for option in options:
                record = option.get_help_record(context)
                if record:
                    lines.append(f"| `{_cell(record[0])}` | {_cell(record[1])} |")
    return "\n".join(lines) + "\n"


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _commands(f"{path} {name}", command.commands[name])


def _section_of(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The section's class that a key holds, if it holds one, and whether it is a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for argument in typing.get_args(annotation):
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            return argument, typing.get_origin(annotation) is tuple
    return None, False


def type_text(annotation: Any) -> str:
    """Say a type in the words of a config.

    Examples
    --------
    >>> from typing import Literal
    >>> type_text(str), type_text(tuple[str, ...]), type_text(Literal["a", "b"]), type_text(Fraction | None)
    ('text', 'list of text', '`"a"` or `"b"`', 'fraction')
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_text(arguments[0])
    if origin is typing.Literal:
        return " or ".join(f'`"{value}"`' for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_text(each) for each in arguments if each is not type(None))
    if origin is tuple:
        return f"list of {type_text(arguments[0])}"
    if origin is not None and issubclass(origin, Mapping):
        return f"table of {type_text(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return " or ".join(f'`"{value.value}"`' for value in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "tables"
    return {str: "text", int: "whole number", bool: "true or false", Fraction: "fraction"}.get(
        annotation, str(annotation)
    )


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    value = field.default.value if isinstance(field.default, enum.Enum) else field.default
    if value is None or value in ((), {}) or value == "":
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f'`"{each}"`' for each in value)
    return f'`"{value}"`' if isinstance(value, str | Fraction) else f"`{value}`"


def _first_sentence(model: type[BaseModel]) -> str:
    text = (model.__doc__ or "").split("\n\n")[0]
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split()))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
