"""Progress of a run on the terminal or in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from tqdm import tqdm

__all__ = ["Bars", "Lines", "progress_on_stderr"]


class Bars:
    """A progress bar per stage, for a terminal.

    tqdm's own times are those of the wall clock: it would show a negative time, and stand still, after that was set
    back. So the time shown comes from the monotonic clock, and each call draws the bar.
    """

    def __init__(self) -> None:
        self._stage = ""
        self._began = 0.0
        self._bar: tqdm | None = None

    def tell(self, stage: str, done: int, of: int) -> None:
        """Move the bar of a stage; a new stage gets a new bar."""
        if self._bar is None or stage != self._stage or done < self._bar.n or of != self._bar.total:
            self.close()
            self._stage = stage
            self._began = time.monotonic()
            self._bar = tqdm(total=of, desc=f"{stage:<9}", bar_format="{l_bar}{bar}| {n}/{total}{postfix}")
        self._bar.n = done
        taken = time.monotonic() - self._began
        left = f", {_clock(taken * (of - done) / done)} left" if 0 < done < of else ""
        self._bar.set_postfix_str(_clock(taken) + left)

    def close(self) -> None:
        """Close the last bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _clock(seconds: float) -> str:
    """Write a duration as a clock shows it.

    >>> _clock(75.2), _clock(3725)
    ('01:15', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


class Lines:
    """A line per finished stage, for a log; ``unit`` is what is counted."""

    def __init__(self, stream: TextIO, unit: str = "shards") -> None:
        self._stream = stream
        self._unit = unit
        self._began: dict[str, float] = {}
        self._ended: set[str] = set()

    def tell(self, stage: str, done: int, of: int) -> None:
        """Write a line when all of a stage is done."""
        began = self._began.setdefault(stage, time.monotonic())
        if done >= of and stage not in self._ended:
            self._ended.add(stage)
            self._stream.write(f"{stage:<9} {of} {self._unit}, {time.monotonic() - began:.1f} s\n")
            self._stream.flush()

    def close(self) -> None:
        """Do nothing: no resource is open."""


@contextmanager
def progress_on_stderr(unit: str = "shards") -> Iterator[Callable[[str, int, int], None]]:
    """A bar per stage on a terminal; a line per stage elsewhere."""
    shown = Bars() if sys.stderr.isatty() else Lines(sys.stderr, unit)
    try:
        yield shown.tell
    finally:
        shown.close()
