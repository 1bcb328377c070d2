"""Run one call in a child process, and have everything that it reports and raises as if it had run here.

The call goes to the child through a pipe, so that nothing of it, a testing key for example, stands on a command line
or in an environment. The child answers through a second pipe, one JSON document a line: what it sends is data that the
parent reads, and never code that the parent runs, since the child may stand where less is trusted.

===========  ==============================  =======================================
kind         payload                         what the parent does
===========  ==============================  =======================================
progress     stage, done, of                 calls ``progress``
stage_time   the fields of a ``StageTime``   calls ``stopwatch``
result       what the call returned          returns it
problems     name of the error, problems     raises the error of :mod:`das.errors`
os_error     number, reason, path            raises the ``OSError``
interrupted  nothing                         raises ``KeyboardInterrupt``
failure      name of the error, traceback    raises a :class:`RemoteFailure` so named
===========  ==============================  =======================================
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any, NoReturn, Protocol

from das import errors
from das.errors import Interrupted, Problem, ProblemsFound
from das.runner import Progress, StageTime, StepTime, Stopwatch, find_runner

__all__ = ["Child", "RemoteFailure", "call", "end_with_parent", "main", "serve", "start"]

STOP_SECONDS = 20.0
"""How long a child that was asked to stop may take to leave its folders in order."""
PR_SET_PDEATHSIG = 1
LOST = Problem(
    "a worker process",
    "was ended before its work was done",
    "run the same command again; if that happens again, it may lack memory (`dmesg` says whom the kernel ended for it)",
)


class RemoteFailure(Exception):
    """An unexpected error in the child, raised as a subclass that has the error's name; its text is the traceback."""


# The parent's side.


def start(prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start a child that waits for a call.

    Parameters
    ----------
    prefix : sequence of str
        A command that prepares the process and then executes the command that follows it.
    """
    served = [sys.executable, "-P", "-m", "pipelines.workers.remote_call"]  # -P: no module of the current folder
    return subprocess.Popen([*prefix, *served], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class Child(Protocol):
    """A process that runs :func:`serve`: a ``subprocess.Popen`` with pipes, or what has the same methods."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def terminate(self) -> None:
        """Ask it to stop."""

    def kill(self) -> None:
        """End it."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended."""


def call(
    child: Child,
    function: Callable[..., Any],
    *arguments: Any,
    progress: Progress | None = None,
    stopwatch: Stopwatch | None = None,
    **named: Any,
) -> Any:
    """Have the child call ``function``, and return what it returns or raise what it raises.

    Parameters
    ----------
    child : Child
        A process that runs :func:`serve` on its ends of ``child.stdin`` and ``child.stdout``. It has ended when this
        function does, however that comes about.
    function : callable
        A function of a module; the child imports it by name. It is also given ``progress`` and ``stopwatch``.
    *arguments, **named
        Anything that can be pickled; what the function returns must be plain data that JSON can hold.
    progress, stopwatch : callable, optional
        Called in this process.

    Raises
    ------
    ProblemsFound
        With the type and the problems that it had in the child; ``Interrupted`` if the child was ended.
    RemoteFailure
        For an error that nobody expected.
    """
    if child.stdin is None or child.stdout is None:
        raise ValueError("the child must have been started with pipes")
    try:
        with suppress(BrokenPipeError), child.stdin as request:
            pickle.dump((function, arguments, named), request)
        for line in child.stdout:
            try:
                kind, payload = json.loads(line)
            except ValueError:
                break  # it was ended in the middle of a message
            if kind == "progress" and progress:
                progress(*payload)
            elif kind == "stage_time" and stopwatch:
                steps = {name: StepTime(**step) for name, step in payload.pop("steps").items()}
                stopwatch(StageTime(**payload, steps=steps))
            elif kind == "result":
                return payload
            elif kind not in ("progress", "stage_time"):
                _raise(kind, payload)
        raise Interrupted(LOST)
    finally:
        _end(child)


def _raise(kind: str, payload: Any) -> NoReturn:
    if kind == "problems":
        found = getattr(errors, payload["type"], ProblemsFound)
        raise found(Problem(*problem) for problem in payload["problems"])
    if kind == "os_error":
        raise OSError(*payload)
    if kind == "interrupted":
        raise KeyboardInterrupt
    raise type(payload["type"], (RemoteFailure,), {})(payload["traceback"])


def _end(child: Child) -> None:
    """Ask a child that still works to stop, and kill it if it does not; one that has answered ends by itself."""
    try:
        child.terminate()
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()


# The child's side.


def serve(requests: int, answers: int) -> None:
    """Read a call from one descriptor, do it, and write all that happens to the other.

    The process ignores Ctrl-C, which reaches the parent too: the parent decides, and asks this process to stop by
    SIGTERM. It is killed when its parent ends.
    """
    for descriptor in (requests, answers):
        os.set_inheritable(descriptor, False)  # or a process that outlives this one would keep the pipe open
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    lock = threading.Lock()

    def send(kind: str, payload: Any) -> None:
        """Several threads report; each message is written whole."""
        message = memoryview(json.dumps((kind, payload)).encode() + b"\n")
        try:
            with lock:
                while message:
                    message = message[os.write(answers, message) :]
        except BrokenPipeError:
            os._exit(Interrupted.exit_code)  # nobody waits for the work any more

    try:
        with os.fdopen(requests, "rb") as request:
            function, arguments, named = pickle.load(request)
        result = function(
            *arguments,
            progress=lambda stage, done, of: send("progress", (stage, done, of)),
            stopwatch=lambda time: send("stage_time", asdict(time)),
            **named,
        )
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the outcome is told whole
        send("result", result)
    except BaseException as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        send(*_outcome_of(error))


def _outcome_of(error: BaseException) -> tuple[str, Any]:
    if isinstance(error, ProblemsFound):
        problems = [(problem.where, problem.reason, problem.remedy) for problem in error.problems]
        return "problems", {"type": type(error).__name__, "problems": problems}
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", None
    if isinstance(error, OSError) and error.errno is not None:
        path = None if error.filename is None else os.fsdecode(error.filename)
        return "os_error", (error.errno, error.strerror, path)
    return "failure", {"type": type(error).__name__, "traceback": "".join(traceback.format_exception(error))}


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def end_with_parent() -> None:
    """Have the kernel kill this process as soon as the thread that started it ends; a later exec keeps this."""
    parent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl")
    if os.getppid() != parent:
        os._exit(Interrupted.exit_code)  # it ended before the kernel was told


def main() -> None:
    """Serve the call that stands on standard input; what is printed meanwhile goes to standard error."""
    end_with_parent()
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    find_runner()  # imports Beam without its warnings
    serve(requests, answers)


if __name__ == "__main__":
    main()
