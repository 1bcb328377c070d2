"""The stages as one resumable job: each begins where the one before was made durable; a finished one is not repeated.

=========  =====================================  =======================================================
stage      reads                                  makes durable
=========  =====================================  =======================================================
tabulate   the input files, the geography         ``confidential/histograms``
measure    the histograms, the run key            ``release/facts``, ``release/measurements``; the ledger
---------  the wall: the kernel refuses the stages below every confidential file
estimate   measurements and facts                 ``release/estimates``, ``release/counts``
publish    counts                                 ``release/tables``, ``release/microdata``
report     all of the release                     ``config.toml``, ``privacy.*``, ``manifest.json`` (last)
=========  =====================================  =======================================================

The stages above the wall run in this process (:mod:`pipelines.confidential_stages`), those below it in another, which
is started before anything is read (:mod:`pipelines.public_stages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import perf_counter

from das.plan.plan import Plan
from das.records.read import input_files
from das.runner import STAGES, Finding, Progress, StageTime, Stopwatch
from das.storage.files import exclusive_lock
from das.storage.hardening import harden
from das.storage.layout import Layout, ReleaseFolder, make_root, refuse_remote, without_links
from das.storage.permissions import secure
from das.storage.run_identity import RunIdentity
from das.storage.staging import committed
from das.storage.testing_key import is_unprotected
from pipelines.confidential_stages import ConfidentialStages
from pipelines.far_side import FarSide, confinement_of
from pipelines.public_stages import PublicWork
from pipelines.runners import is_elsewhere, private_network_of
from pipelines.runners.machine import findings
from pipelines.runners.preflight import ready_runner
from pipelines.workers import remote_call

__all__ = ["BeamRunner"]

BEFORE_THE_WALL = ("tabulate", "measure")


def _input_still_read(plan: Plan, layout: Layout) -> list[Path]:
    """The input files; none once the mechanism's output is durable, because nothing reads records after that."""
    return [] if committed(layout.release.mechanism(plan)) else input_files(plan)


class BeamRunner:
    """Run plans on Apache Beam; see :class:`das.runner.Runner`."""

    def run(
        self,
        plan: Plan,
        out: Path,
        *,
        upto: str = STAGES[-1],
        options: Sequence[str] = (),
        testing_key: str | None = None,
        unprotected: bool = False,
        progress: Progress | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        """Run the plan into ``out``, up to and including a stage."""
        harden()
        refuse_remote(out)
        unprotected = is_unprotected(plan, testing_key, allowed=unprotected)
        elsewhere = is_elsewhere(options)  # options are checked before anything is written
        out = out.resolve() if elsewhere else without_links(out)  # the current folder of workers elsewhere is another
        network = private_network_of(options) if elsewhere else None
        if network and not network.is_here:
            child = remote_call.start(network.prefix)
            how = {"upto": upto, "options": tuple(options), "testing_key": testing_key, "unprotected": unprotected}
            remote_call.call(child, self.run, plan, out, **how, progress=progress, stopwatch=stopwatch)
            return
        layout, progress = Layout(out), progress or (lambda stage, done, of: None)
        wanted = STAGES[: STAGES.index(upto) + 1]
        make_root(out, private=unprotected)

        def note(time: StageTime) -> None:
            if stopwatch:
                stopwatch(time)
            layout.log.touch(mode=0o600)  # how long a stage took may reveal something about the data
            begun = datetime.now(UTC) - timedelta(seconds=time.seconds)
            with layout.log.open("a") as log:
                log.write(f"{begun:%Y-%m-%dT%H:%M:%SZ} {time.stage} {time.seconds:.1f} s\n")
            secure(layout, unprotected=unprotected)  # before the next stage begins

        public = tuple(stage for stage in wanted if stage not in BEFORE_THE_WALL)
        with ExitStack() as stack:
            far_side = stack.enter_context(FarSide.opened(options)) if public else None
            stack.enter_context(exclusive_lock(out))
            identity = RunIdentity.claim(plan, layout, testing_key, allow_unprotected=unprotected)
            stack.enter_context(identity.no_key_after_refusal())
            wanted_input = partial(_input_still_read, plan, layout)
            bound = stack.enter_context(ready_runner(options, out, wanted_input))
            confidential = ConfidentialStages(plan, layout, identity, bound, progress)
            for stage in (stage for stage in wanted if stage in BEFORE_THE_WALL):
                begun = perf_counter()
                getattr(confidential, stage)()
                took = perf_counter() - begun
                note(StageTime(stage=stage, seconds=took, **confidential.spent.pop(stage, {})))
            if far_side is not None:
                record = identity.record() if "report" in public else None
                # The far side may have been started from another folder: a relative path would lead elsewhere there.
                release = ReleaseFolder(layout.release.path.absolute())
                work = PublicWork(plan, release, tuple(bound), public, identity.seeded, record)
                confinement = stack.enter_context(confinement_of(plan, layout, network=elsewhere))
                far_side.run(work, confinement, progress=progress, stopwatch=note)

    def findings(self) -> list[Finding]:
        """Return what this machine offers to runs."""
        return findings()
