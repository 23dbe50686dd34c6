from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings


@check(severity=ERROR, area="smoke")
def smoke_parameters_not_broadcast(run: SmokeRun, training: PerHost[SmokeTraining]) -> Iterator[Finding]:
    """The first broadcast gives all data-parallel ranks the same parameters.

    ## Why it matters
    Ranks that start from different parameters average gradients of different models: the models never become equal, and
    the checkpoint of rank 0 is only one of them.

    ## What to do
    Broadcast the parameters and buffers of the first rank of each data-parallel group before the first step, with
    global rank {root} as the source (`dist.broadcast(tensor, src={root})` takes a global rank, also inside a group); or
    let `DistributedDataParallel` do it, and load checkpoints before it is built. If the job does that already, the
    broadcast itself does not arrive at {who}: see smoke-collective-wrong.

    ## Source
    In the smoke run every data-parallel rank but the first begins with parameters of its own, and reports digests of
    them before and after the broadcast.
    """
    yield from findings("smoke-parameters-not-broadcast", run, training)
