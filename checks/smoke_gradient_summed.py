from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings


@check(severity=ERROR, area="smoke")
def smoke_gradient_summed(run: SmokeRun, training: PerHost[SmokeTraining]) -> Iterator[Finding]:
    """The reduced gradient is the mean over ranks and micro-batches, not their sum.

    ## Why it matters
    A sum is a mean with a learning rate that is as many times as high as there are ranks. Adam hides it, because it
    divides by the gradient's own size. SGD, gradient clipping and weight decay do not, and a job that ran well on few
    ranks breaks on many.

    ## What to do
    `grep -rnE 'all_reduce|register_comm_hook|ReduceOp' --include='*.py' .` finds the reductions of the program:
    DistributedDataParallel divides by itself, unless a communication hook replaces its reduction. Divide by the number
    of data-parallel ranks after the all-reduce (or use `ReduceOp.AVG` where the backend has it), and each micro-batch's
    loss by the number of micro-batches. Divide only once: where the loss is divided by the global batch already, a sum
    is right.

    ## Source
    The norm of the whole reduced gradient, put together from the ranks' shares, against the reference run's for the
    same rows: healthy runs agree to 2e-7. A mean is never longer than the longest of its parts, also where more is
    wrong.
    """
    yield from findings("smoke-gradient-summed", run, training)
