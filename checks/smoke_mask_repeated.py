from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings


@check(severity=ERROR, area="smoke")
def smoke_mask_repeated(run: SmokeRun, training: PerHost[SmokeTraining]) -> Iterator[Finding]:
    """Data-parallel ranks draw different masks and different dropout.

    ## Why it matters
    Ranks that share a seed mask the same positions of different rows. The job looks healthy but learns a little worse:
    its batch has less variety than its size suggests, and dropout removes the same units everywhere.

    ## What to do
    Add the data-parallel index to the seed of {generators}: `seed + dp_rank`, or seed by the number of the sample.
    Ranks that hold one model must keep one seed among themselves.

    ## Source
    In the smoke run the draws of two different blocks of rows never agree: a generator gives about a thousand numbers a
    step, reported as a digest of 8 bytes. Equal digests on two data-parallel ranks are equal seeds.
    """
    yield from findings("smoke-mask-repeated", run, training)
