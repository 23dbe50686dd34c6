from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.engine.fact import Unreadable
from doctor.facts.smoke import SmokeStart, SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import device_outliers
from doctor.smoke.numerics.defect import ranks_on


@check(severity=ERROR, area="smoke")
def smoke_twin_differs(
    run: SmokeRun, training: PerHost[SmokeTraining], started: PerHost[SmokeStart] | None
) -> Iterator[Finding]:
    """One and the same training gives the same bits on all devices of a kind.

    ## Why it matters
    Every rank trains the same small model by itself, without any other rank. If one comes to another result than its
    equals, its device multiplies wrongly, or its library or settings are not the others'. Such a rank spoils every
    sum that it takes part in, and raises no error.

    ## What to do
    Run it again. If the same rank stands apart, compare driver, firmware, torch and the environment
    (NVIDIA_TF32_OVERRIDE, TORCH_ALLOW_TF32_CUBLAS_OVERRIDE, OMP_NUM_THREADS, MKL settings) on {host} with the others'.
    If those are equal, take its device out of the job and have it tested.

    ## Source
    Losses of each step and digests of all parameters, before and after, of a training that uses one rank alone. Ranks
    on one kind of accelerator, and on the CPUs of one host, are compared bit for bit; different ones to 1e-4.
    """
    outliers, explained = device_outliers(run.plan, training, started)
    for outlier in outliers:
        template = "{who}: its own serial training ends with other numbers than that of {agree}, on {kind}: {how}"
        if not outlier.agreeing:
            template = "the serial trainings of {who} end with different numbers, on {kind}: {how}; none has a majority"
        yield Finding(
            template,
            hosts=run.hosts(outlier.ranks),
            who=ranks_on(run.plan, outlier.ranks),
            agree=ranks_on(run.plan, outlier.agreeing),
            kind=outlier.kind,
            how=outlier.explanation,
            ranks=list(outlier.ranks),
            share=outlier.share,
            tie=not outlier.agreeing,
        )
    if explained:
        raise Unreadable("serial trainings differ; smoke-mask-differs explains it", "smoke-mask-differs")
