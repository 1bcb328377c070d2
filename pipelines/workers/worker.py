"""A worker process of the multi-process runner: Beam's own, silenced.

Beam's worker logs its start and its end, and prints the traceback of every failure, to standard error. The text of a
failure may quote data, and the rest is noise to the person at the keyboard; problems reach them through
:mod:`pipelines.workers.errors`, and the driver has the traceback for ``--debug``.
"""

from __future__ import annotations

import logging
import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run Beam's worker until the driver ends it."""
    logging.disable(logging.CRITICAL)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()
