from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.facts.smoke.further_stages import SmokePace
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.slow_rank_findings import slow_rank_findings
from doctor.smoke.speed.rank_speeds import input_only, slow_ranks


@check(severity=WARNING, area="smoke")
def smoke_input_slow(
    run: SmokeRun, paces: PerHost[SmokePace], started: PerHost[SmokeStart] | None
) -> Iterator[Finding]:
    """No rank prepares its input more slowly than its peers.

    ## Why it matters
    A rank whose batches come late enters every collective late, and all the others wait for it there. Their profiles
    show slow communication, its own an idle device.

    ## What to do
    On {host}, find what slows down the CPU and memory: `top -b -n 1 | head -20`, `vmstat 1 5` (swap in and out, wait
    for I/O), `grep throttled /sys/fs/cgroup/cpu.stat`. `numactl --hardware` and `for p in $(pgrep python); do taskset
    -cp $p; done` show a rank that is bound to few CPUs, or to the far socket. Then check the path to the data set:
    `findmnt --real`, `nfsiostat 1 3`. More loader workers, or a copy of the data on a local disk, help if the host
    itself is healthy.

    ## Source
    All ranks draw, sort and move the same numbers to their device again and again; time spent waiting for a CPU does
    not count. The rule is that of smoke-rank-slow, with its repeated measurements. A rank that is as slow in computing
    on the same CPU is left to that check. `doctor watch` judges the rank's own work in the whole training, as
    smoke-rank-slow does, and it is this check where the wait for the input makes up half or more of what is longer.
    """
    slow = slow_ranks("input", paces, started, run)
    if run.watched:
        yield from slow_rank_findings(
            run,
            slow,
            "in each step {who} waits {seconds} for its input; the median of its peers: {norm} (confidence "
            "{confidence})",
        )
        if not any(any(event.input) for fact in paces.values() for event in fact.paced):
            raise Skip("no rank waited for its input")
        return
    yield from slow_rank_findings(
        run,
        input_only(slow, paces, started, run),
        "{who} took {ratio} times the median time of the peers to prepare the same input: {seconds} against {norm} "
        "(confidence {confidence})",
    )
