from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.smoke.collectives import SmokeCollectives
from doctor.facts.smoke.further_stages import SmokeLearning
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings
from doctor.smoke.numerics.learned import wrong_shard
from doctor.smoke.numerics.reference_run import LOSS_TOLERANCE

OWN = (
    "Run `doctor smoke` again with the hosts in another order. If the NaN moves with the rank, its device is bad. If "
    "it stays with the position in the layout, or all ranks have it at once, it is arithmetic: a kernel of one library "
    "version, or half precision without loss scaling."
)


@check(severity=ERROR, area="smoke")
def smoke_not_finite(
    run: SmokeRun,
    training: PerHost[SmokeTraining],
    learning: PerHost[SmokeLearning] | None,
    collectives: PerHost[SmokeCollectives] | None,
) -> Iterator[Finding]:
    """All losses, gradients and parameters are finite numbers.

    ## Why it matters
    One NaN on one rank reaches every rank in the next reduction, and every parameter in the next update. Then all ranks
    look alike, and the origin can no longer be found.

    ## What to do
    {look}
    In your training program: with `torch.autograd.set_detect_anomaly(True)` before the loop, torch prints the line
    whose operation gives the first NaN gradient. `assert torch.isfinite(batch).all()` in the loop stops it at a bad
    batch. Other causes: half precision without loss scaling, a learning rate that is too high, a division by a count of
    zero. Where one rank alone makes it, of good numbers, examine its device: `for i in $(seq 0 7); do npu-smi info -t
    ecc -i $i; done` or `nvidia-smi -q -d ECC,ROW_REMAPPER` on {host} shows memory errors.

    ## Source
    Every rank sums up what goes into each part of its model and what comes out, before anything is mixed with other
    ranks' numbers. A rank that turned finite numbers into others made them; one that received them did not cause them.
    Where no rank made them, the first that held them is named, and those that may have sent them. Where collectives
    gave wrong values before, numbers that are not finite on several ranks follow from that, and are unknown here.

    Of a watched program (`doctor watch`): three losses in a row that are NaN or Inf; 64 where the program's own lines
    say that a loss scaler left the steps out. Of fewer, those at the end of what was read are a warning, unless lines
    say so: a program may print every fiftieth loss. That can be wrong where the next loss would have been finite.
    """
    corrupted = any(fact.wrong for fact in (collectives or {}).values())
    everyone = len(run.hosts(tuple(range(run.plan.world))))
    layout_findings = list(findings("smoke-not-finite", run, training))
    received = corrupted and any(len(finding.hosts) == everyone for finding in layout_findings)
    for finding in layout_findings:
        finding.values["look"] = "" if run.watched else OWN
        yield finding.because_of("smoke-collective-wrong", *finding.explained_by) if received else finding
    bad_steps = [event for fact in (learning or {}).values() for event in fact.steps if event.loss is None]
    if bad_steps and not layout_findings:
        step = min(event.step for event in bad_steps)
        ranks = sorted(event.rank for event in bad_steps if event.step == step)
        finding = Finding(
            "the loss of step {step} of the learning stage is NaN or Inf on {who}; the layouts' short runs were finite",
            hosts=run.hosts(tuple(ranks)),
            who=filled("{0} ranks", len(ranks)) if len(ranks) > 1 else f"rank {ranks[0]}",
            ranks=ranks,
            step=step,
            look=OWN,
        )
        facts = (learning or {}).values()
        own = wrong_shard(run.plan, facts) or any(
            event.repeated > LOSS_TOLERANCE for fact in facts for event in fact.learned
        )
        causes = ["smoke-collective-wrong"] * (corrupted and len(ranks) > 1) + ["smoke-learning-differs"] * bool(own)
        yield finding.because_of(*causes)
