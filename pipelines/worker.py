"""A worker process of the multi-process runner: Beam's own, silenced.

Beam's worker logs its start, its end and the text of every failure to standard error. The text of a failure may quote
data, and the rest is noise to the person at the keyboard; problems reach them through :mod:`pipelines.complaints`.
"""

from __future__ import annotations

import logging
import sys

__all__ = ["main"]


def main() -> None:
    """Run Beam's worker until the driver ends it."""
    logging.disable(logging.CRITICAL)
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()
