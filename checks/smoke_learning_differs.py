from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke import SmokeLearning, SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import analyze_training
from doctor.smoke.numerics.learned import differing_replicas
from doctor.smoke.results.trouble_findings import describe_ranks


@check(severity=ERROR, area="smoke")
def smoke_learning_differs(
    run: SmokeRun, learning: PerHost[SmokeLearning], training: PerHost[SmokeTraining] | None
) -> Iterator[Finding]:
    """What data-parallel ranks have learned is the same, bit for bit.

    ## Why it matters
    Replicas that differ are models of their own from that step on, whose gradients are still averaged. The loss hardly
    shows it, and a checkpoint holds the replica of one rank only.

    ## What to do
    The first short training was right, so the fault comes and goes: memory, a device or a link of {host} that flips
    bits now and then. `doctor smoke --for 10m` counts how often, and on which rank. On {host}: `dmesg -T`,
    `npu-smi info -t ecc -i N` or `nvidia-smi -q -d ECC`, `ethtool -S NIC`.

    ## Source
    After the last step every rank compares digests of its parameters and of its last reduced gradient with its
    data-parallel group. Ranks that differ from each other do the same training serially, and the ones that are further
    from it than the rest are named: healthy ones come as near as 1e-5 of what the parameters changed by. This verdict
    can be wrong where all replicas are wrong alike, which it does not see, and names all of a group where none of them
    stands out.
    """
    causes = analyze_training(run.plan, training).causes if training else ()
    events = [event for fact in learning.values() for event in fact.learned]
    for ranks, group, error in differing_replicas(events):
        known = len(ranks) < len(group)
        finding = Finding(
            "after {steps} steps {who} {differ}{error}",
            hosts=run.hosts(ranks),
            who=describe_ranks(run, ranks),
            ranks=list(ranks),
            steps=events[0].steps,
            differ="holds other parameters than the rest of its data-parallel group" * known
            or "of one data-parallel group hold different parameters; which of them are wrong is not known",
            error=f": {error:.1e} from the serial training, as a share of what was learned" if error else "",
        )
        yield finding.because_of(*(cause.check for cause in causes))
