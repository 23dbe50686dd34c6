from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings


@check(severity=ERROR, area="smoke")
def smoke_loss_differs(run: SmokeRun, training: PerHost[SmokeTraining]) -> Iterator[Finding]:
    """Every layout trains exactly as the same model does in one process.

    ## Why it matters
    Parallel training is the serial training, distributed: same rows, same draws, same start, so the same losses and
    gradients to about seven digits. A layout that is off by more computes something else, however well its loss falls.

    ## What to do
    The layouts that are off, the step, and whether loss or gradient is off first, distinguish the errors: most likely
    {likely}. Reproduce it in the job: take two ranks, no dropout, a fixed batch and SGD, and compare the first three
    losses with one process. This run does not contain the job's own program. So compare its ranks: `doctor check
    {all_hosts}` compares torch, the collective library and its settings. `doctor smoke {all_hosts} --device-test`
    compares what their devices compute.

    ## Source
    SGD at a rate of 0.5 for a few steps, compared at 1e-4 relative. Healthy runs differ by up to 2e-7; of 20 wrong
    programs that were tried, the mildest by 1e-3. Without an all-reduce in the forward pass the loss of step 0 is off
    and whole tensors part; with permuted shards it is off and they do not; without one in the backward pass the loss of
    step 0 is right and its gradient is off; with a shifted ZeRO shard the gradient of step 0 is right too. Shards that
    changed places and single flipped bits change no loss: other checks see them by digests, and this one those of
    messages between pipeline stages. A rank also compares its own loss with that of the same blocks in its reference
    run: the mean over many ranks would hide it. If only some ranks are off, they are named, and all ranks of a model
    whose loss is off as a whole. This verdict can be wrong where the reference run of such a rank went wrong, and not
    the layout: `smoke-reference-differs` sees that.
    """
    yield from findings("smoke-loss-differs", run, training)
