"""``python -m pipelines.runners NAME up | down | status | exec COMMAND``: a cluster on this machine."""

from pipelines.runners.clusters import main

if __name__ == "__main__":
    main(prog_name="python -m pipelines.runners")
