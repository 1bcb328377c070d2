"""The ``das`` command: verbs a person types, messages a person can act on, and exit codes a script can."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import click

from das.commands import accuracy, audit, choosing, infer, inspecting, planning, query, release, synth, table
from das.errors import Interrupted, Problem, ProblemsFound, UsageError

__all__ = ["main"]

INTERNAL_ERROR = 1
_INTERRUPTED = Interrupted(Problem("interrupted", "the run can be continued", "run the same command again"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every failure becomes a message and an exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    own = arguments.index("--") if "--" in arguments else len(arguments)  # what follows is Beam's
    debug = "--debug" in arguments[:own]
    arguments = [argument for argument in arguments[:own] if argument != "--debug"] + arguments[own:]
    signals: list[int] = []

    def interrupt(number: int, _frame: object) -> NoReturn:
        signals.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        das.main(args=arguments, prog_name="das", standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.ClickException as error:
        if debug:
            raise
        error.show()
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        _fail(_INTERRUPTED)
    except ProblemsFound as error:
        if debug:
            raise
        _fail(error)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except (OSError, MemoryError) as error:
        if debug:
            raise
        _fail(_refused(error))
    except Exception as error:
        if debug:
            raise
        if signals:  # a runner wraps what it does not know, an interruption too
            _fail(_INTERRUPTED)
        # The text of an unexpected error may quote data, so only its kind is shown.
        problem = f"an unexpected {type(error).__name__}"
        click.echo(f"das: {problem}; run again with --debug on a machine cleared for the data, and report it", err=True)
        sys.exit(INTERNAL_ERROR)


def _refused(error: OSError | MemoryError) -> ProblemsFound:
    """What the operating system refused, by path; its words never quote a file's contents."""
    if isinstance(error, MemoryError):
        return Interrupted(Problem("das", "there is not enough memory", "use fewer workers, or a larger machine"))
    problem = Problem(str(error.filename or "das"), f"cannot be used ({error.strerror or type(error).__name__})")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Interrupted(replace(problem, remedy="free space and run the same command again"))
    return UsageError(replace(problem, remedy="check that it exists, and that you may read and write it"))


def _fail(error: ProblemsFound) -> NoReturn:
    for problem in error.problems:
        click.echo(f"das: {problem}", err=True)
    sys.exit(error.exit_code)


class Verbs(click.Group):
    """A group whose list of commands shows each first sentence whole, over several lines where it needs them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(200)) for name in sorted(self.commands)])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of a failure.")
@click.version_option(package_name="das")
def das(debug: bool) -> None:
    """Publish counts of people under differential privacy: for each place of a hierarchy, with a privacy statement."""


for _group in (planning, choosing, release, inspecting, query, infer, accuracy, audit, synth, table):
    for _command in _group.COMMANDS:
        das.add_command(_command)
