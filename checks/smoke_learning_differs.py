from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled, joined
from doctor.facts.smoke.further_stages import SmokeLearning
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import COLLECTIVE_CHECK, REFERENCE_CHECK, analyze_training, device_outliers
from doctor.smoke.numerics.defect import sent_by
from doctor.smoke.numerics.learned import wrong_learners, wrong_shard
from doctor.smoke.numerics.reference_run import LOSS_TOLERANCE, MAX_TOLERANCE, majority_reference
from doctor.smoke.results.trouble_findings import describe_ranks

DIFFER = {
    ("replicas", True): "ended with other parameters than the rest of the data-parallel group",
    ("replicas", False): "of one data-parallel group hold different parameters; which of them are wrong is not known",
    ("serial", True): "came to other parameters than the same training in one process, and the other ranks do not",
    ("serial", False): "came to other parameters than the same training in one process; where they go wrong is not "
    "known",
    ("losses", True): "had computed another loss for one of them than the same training in one process, and the "
    "other ranks had not",
    ("losses", False): "had computed another loss for one of them than the same training in one process; which of "
    "them is wrong is not known",
    ("own", True): "came to other numbers when they computed their part of it again",
    ("own", False): "came to other numbers when they computed their part of it again",
    ("messages", True): "had changed a message between pipeline stages in its memory",
    ("messages", False): "have different bits of the messages between them; which of them are wrong is not known",
}
"""By what differs: replicas from each other, or from the serial run; and by whether it is known who is wrong."""


@check(severity=ERROR, area="smoke")
def smoke_learning_differs(
    run: SmokeRun, learning: PerHost[SmokeLearning], training: PerHost[SmokeTraining] | None
) -> Iterator[Finding]:
    """What ranks have learned is the same as in one process, and on data-parallel ranks of one kind bit for bit.

    ## Why it matters
    Replicas that differ are models of their own from that step on, whose gradients are still averaged. The loss hardly
    shows it, and a checkpoint holds the replica of one rank only.

    ## What to do
    The first short training was right, so the fault comes and goes: memory, a device or a link of {host} that flips
    bits now and then. `doctor smoke --for 10m` counts how often, and on which rank. On {host}: `dmesg -T`, `for i in
    $(seq 0 7); do npu-smi info -t ecc -i $i; done` or `nvidia-smi -q -d ECC`, `grep .
    /sys/class/net/*/statistics/*errors`.

    ## Source
    After the last step every rank compares digests of its parameters and of all its reduced gradients with its
    data-parallel group, and does the same training serially; of ranks that hold the same bits, one does. Of ranks that
    differ from each other those are named that are further from the serial training than the rest; where none is, those
    that differ from most hosts; and with a rank that had other sums of gradients than the rest, who sends it sums,
    unless it gave the part that it has otherwise on to a rank that has it right. Ranks that are alike, or compute by
    different code paths (device model, instructions in use, torch), are wrong if they are further from it than 1e-2 of
    what the parameters changed by, or of the last gradient (a hundred times the tolerance of one step); of 360 healthy
    trainings the furthest came to 1.2e-4. Each step's loss is compared, too, with that of the same rows in the serial
    run (1e-3; ten times the tolerance of one step): a rank that is off alone computed it wrong; where all are off, or
    all but the first rank of the group, the serial run of that rank was wrong. Messages between pipeline stages are
    compared by digests first, at both ends: if one changed in the memory of a rank, that rank is named, else its sender
    and its receiver. This verdict can be wrong where an error of one pipeline stage has spread to the others, so that
    all of them are named, and does not see a smaller error that all replicas have alike. Where anything is further than
    1e-2 from the serial training, the collectives run again, exactly: smoke-collective-wrong then names a rank that has
    made them wrong since their test, and what all ranks came to follows from it. From 410 ranks on the serial training
    does fewer steps than the ranks, so that it takes no longer than for 410: a fault that begins later shows by the
    replicas alone. On CPUs, where anything is further than 5e-4 from it, each rank does its part of the first 64 steps
    again, with what the others had sent it, and its serial training: who comes to other numbers is named before all
    others. Of a sharded optimizer (ZeRO-1) each rank keeps what it added, got and sent in these steps, and whose sum or
    exchange was wrong first is named.
    """
    causes = {cause.check for cause in analyze_training(run.plan, training).causes} if training else set()
    if training and any(outlier.share > LOSS_TOLERANCE for outlier, _ in device_outliers(run.plan, training, None)):
        causes.add(REFERENCE_CHECK)
    events = [event for fact in learning.values() for event in fact.learned]
    reference = majority_reference(training or {})
    tolerance = reference.tolerance if reference else MAX_TOLERANCE
    if not any(event.repeated > tolerance for event in events) and (fault := wrong_shard(run.plan, learning.values())):
        finding = Finding(
            joined("", ("while it learned: ", fault.template)),
            hosts=run.hosts(fault.ranks),
            who=describe_ranks(run, fault.ranks),
            ranks=list(fault.ranks),
            tie=fault.tie,
            step=fault.step,
            share=f"{fault.share:.1e}",
        )
        yield finding.because_of(*sorted(causes), *[COLLECTIVE_CHECK] * fault.was_sent)
        return
    for wrong in wrong_learners(run.plan, learning.values(), tolerance):
        known, suspects = len(wrong.ranks) < len(wrong.compared), tuple(sorted(wrong.ranks + wrong.senders))
        finding = Finding(
            joined("", ("after {steps} steps {who} {differ}{error}", *["{sent}"] * bool(wrong.senders))),
            hosts=run.hosts(suspects),
            who=describe_ranks(run, wrong.ranks),
            ranks=list(suspects),
            tie=not known or bool(wrong.senders),
            sent=sent_by(run.plan, wrong.senders),
            steps=events[0].steps,
            differ=DIFFER[wrong.what, known],
            error=filled(
                ": by {0} of it"
                if wrong.what in ("losses", "own")
                else ": {0} from the serial training after {1} steps, as a share of what was learned",
                f"{wrong.error:.1e}",
                events[0].error_steps or events[0].steps,
            )
            if wrong.error
            else "",
        )
        yield finding.because_of(*sorted(causes), *[COLLECTIVE_CHECK] * finding.values["tie"])
