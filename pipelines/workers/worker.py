"""A worker process: Beam's own, with its output discarded.

Beam's worker writes its start, its end and the traceback of every failure to standard error. A traceback may quote
data, and the rest is of no use to the user. Problems reach the user through :mod:`pipelines.workers.errors`, and the
driver has the traceback for ``--debug``.
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
