from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.engine.fact import Unreadable
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings
from doctor.smoke.results.environments import lacking_numpy


@check(severity=ERROR, area="smoke")
def smoke_mask_differs(
    run: SmokeRun, training: PerHost[SmokeTraining], started: PerHost[SmokeStart] | None
) -> Iterator[Finding]:
    """Ranks that hold one model together draw the same masks and the same dropout.

    ## Why it matters
    Tensor- and pipeline-parallel ranks work on the same rows. If each masks other positions of them, one rank's
    embedding hides what another rank's loss asks for. With tensor parallelism the loss falls and then climbs again.
    With pipelines it even falls faster than it should, because the answers leak. No error is raised.

    ## What to do
    In the folder of the job's program: `grep -rnE 'manual_seed|random.seed|default_rng|set_seed' --include='*.py'`
    shows where it seeds. Seed every generator that the data or dropout use (`random`, `numpy.random`, `torch`, the
    device's, and those of the loader's workers) by the data-parallel index, not by the rank. Ranks that hold one model
    (tensor and pipeline parallel) then draw the same mask, of dropout or of masked tokens. With tensor and pipeline
    parallel ranks next to each other that index is `rank // (tp * pp)`. Or draw the mask on one rank and broadcast it.
    Generators known to differ: {generators}. Where hosts have different versions of a library, its draws may differ
    too; see smoke-version-differs.

    ## Source
    In the smoke run each generator is seeded anew for every block of rows, so ranks that read the same block must draw
    the same numbers, bit for bit; every rank reports the digests of its draws and of its masks. The rank whose digests
    differ from most of its model's, or from the reference run's, is named.
    """
    differing = list(findings("smoke-mask-differs", run, training))
    if not lacking_numpy(started or {}):
        yield from differing
        return
    yield from (finding.because_of("smoke-numpy-missing", *finding.explained_by) for finding in differing)
    if not differing:
        raise Unreadable("masks are drawn with NumPy only on the hosts that have it", "smoke-numpy-missing")
