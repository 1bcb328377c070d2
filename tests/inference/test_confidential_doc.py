"""The page about confidential estimators: its example runs, and its commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import das.inference.confidential
from das.commands.infer_confidential import METHODS

PAGE = Path(das.inference.confidential.__file__).with_name("README.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(code, "confidential.md", "exec"), {})


def test_the_commands_take_the_options_that_are_shown() -> None:
    shown = [shlex.split(line) for line in re.findall(r"^das infer (.*)$", PAGE, flags=re.MULTILINE)]
    known = {command.name: command for command in METHODS}
    assert {line[0] for line in shown} == set(known)
    for name, *arguments in shown:
        known[name].make_context(name, list(arguments))
