from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings


@check(severity=ERROR, area="smoke")
def smoke_parameters_not_broadcast(run: SmokeRun, training: PerHost[SmokeTraining]) -> Iterator[Finding]:
    """The first broadcast gives all data-parallel ranks the same parameters.

    ## Why it matters
    Ranks that start from different parameters average gradients of different models: the models never become equal, and
    the checkpoint of rank 0 is only one of them.

    ## What to do
    Behind the last line that writes parameters (a checkpoint, an initialization), before the first step: `for t in
    [*model.parameters(), *model.buffers()]: dist.broadcast(t.data, src={root})`, on every rank of the data-parallel
    group; {root} is a global rank. `DistributedDataParallel` does the same when it is built: where the job uses it,
    {who} wrote the parameters later, or the program excludes them from it. Where nothing writes them later, the
    broadcast does not arrive: see smoke-collective-wrong.

    ## Source
    In the smoke run every data-parallel rank but the first begins with parameters of its own, and reports digests of
    them before and after the broadcast. Parameters that no rank made may have changed on their way: who sends them is
    named beside the rank that has them.
    """
    yield from findings("smoke-parameters-not-broadcast", run, training)
