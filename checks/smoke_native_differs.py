from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, joined
from doctor.engine.fact import Unreadable
from doctor.facts.smoke.further_stages import SmokeNative
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import analyze_training
from doctor.smoke.numerics.losses import native_deviations, not_run
from doctor.smoke.numerics.reference_run import majority_reference


@check(severity=ERROR, area="smoke")
def smoke_native_differs(
    run: SmokeRun, native: PerHost[SmokeNative], training: PerHost[SmokeTraining]
) -> Iterator[Finding]:
    """torch's own parallel wrappers train exactly as the same model does in one process.

    ## Why it matters
    The layouts of the smoke run are made of plain collectives. Jobs use DDP, FSDP2, DTensor and pipelines, which call
    others, in another order, on streams of their own. If those fail and the plain ones do not, the fault is in that
    wrapper, in its version, or in how it works with the backend.

    ## What to do
    The same layout ({layout}) made of plain collectives passes, so the fault is in {api}. Install the next release for
    the job's interpreter on all hosts, `python3 -m pip install --upgrade torch` (with NPUs the torch_npu that belongs
    to it), and try it: `doctor smoke {all_hosts} --native`. Or take away its options one by one (overlap, mixed
    precision, bucket sizes, `reshard_after_forward`), and compare the first three losses with those of one process.

    ## Source
    Same rows, same start and same optimizer as the reference run; losses compared at 1e-4 relative. On gloo all of them
    agree with it to 2e-7.
    """
    reference = majority_reference(training)
    if reference is None:
        raise Unreadable("no rank reported its reference run")
    causes = analyze_training(run.plan, training).causes
    for difference in native_deviations(run.plan, native, reference):
        finding = Finding(
            "{api} in {layout}: the loss of step {step} is {observed}, expected {expected} as in one process",
            hosts=run.hosts(difference.ranks),
            api=difference.api,
            layout=difference.layout,
            step=difference.step,
            observed=difference.observed,
            expected=difference.expected,
            ranks=list(difference.ranks),
        )
        yield finding.because_of(*(cause.check for cause in causes))
    absent_results = not_run(run.plan, native)
    if absent_results:
        raise Unreadable(joined("; ", absent_results))
