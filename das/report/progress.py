"""Progress of a run on the terminal or in a log."""

from __future__ import annotations

import time
from typing import TextIO

from tqdm import tqdm

__all__ = ["Bars", "Lines"]


class Bars:
    """A progress bar per stage, for a terminal."""

    def __init__(self) -> None:
        self._stage = ""
        self._bar: tqdm | None = None

    def tell(self, stage: str, done: int, of: int) -> None:
        """Move the bar of a stage; a new stage gets a new bar."""
        if self._bar is None or stage != self._stage or done < self._bar.n or of != self._bar.total:
            self.close()
            self._stage = stage
            self._bar = tqdm(total=of, desc=f"{stage:<9}", bar_format="{l_bar}{bar}| {n}/{total} {elapsed}")
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Close the last bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Lines:
    """A line per finished stage, for a log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began: dict[str, float] = {}
        self._ended: set[str] = set()

    def tell(self, stage: str, done: int, of: int) -> None:
        """Write a line when a stage has written all its shards."""
        began = self._began.setdefault(stage, time.monotonic())
        if done >= of and stage not in self._ended:
            self._ended.add(stage)
            self._stream.write(f"{stage:<9} {of} shards, {time.monotonic() - began:.1f} s\n")
            self._stream.flush()

    def close(self) -> None:
        """Do nothing: no resource is open."""
