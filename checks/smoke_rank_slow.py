from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.facts.smoke.collectives import SmokeCollectives
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.facts.smoke.further_stages import SmokePace
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.slow_rank_findings import quota_findings, slow_rank_findings, soak_findings
from doctor.smoke.speed.rank_speeds import devices_of, slow_ranks
from doctor.smoke.speed.soak_drift import slow_in_soak

OF_A_SOAK = ("collectives",)


@check(severity=WARNING, area="smoke", advisory=OF_A_SOAK)
def smoke_rank_slow(
    run: SmokeRun,
    paces: PerHost[SmokePace],
    started: PerHost[SmokeStart] | None,
    collectives: PerHost[SmokeCollectives] | None,
) -> Iterator[Finding]:
    """No rank computes more slowly than its peers.

    ## Why it matters
    Every step waits for the slowest rank. One that is 20 % slower costs all the others 20 % of their time, and in
    their own profiles that looks like slow communication.

    ## What to do
    On {host}, check who else uses it and whether it is throttled: `top -b -n 1 | head -20`, `grep throttled
    /sys/fs/cgroup/cpu.stat`, `cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor` (expected performance), `for p
    in $(pgrep python); do taskset -cp $p; done`. A quota that is used up (`cat /sys/fs/cgroup/cpu.max`, or
    cpu.cfs_quota_us): give the container or the job as many CPUs as on the other hosts.
    - NPU: `npu-smi info`.
    - GPU: `nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE` (a clock that is throttled, a power cap).

    Compare with a healthy host, clean or reseat what is too hot, and leave the host out until then.

    ## Source
    All ranks do the same matrix products again and again, without exchanging anything; time spent waiting for a CPU
    does not count. A rank is slow when its usual time and the time of its quickest tenth are both 10 % over those
    of the median rank with the same kind of device, and more than the noise of these times makes likely for any
    rank (the confidence); never more than half of the ranks. Where a rank looks slow, all ranks do the work again, up
    to three times within two seconds, and it has to be slow each time (by half of the 10 % at least): another program
    that has the caches of a host for a moment makes no slow rank. Where the median
    rank waits for a CPU for half of its time or more, a rank is slow from 50 % on: other programs use its caches then.
    This verdict can be wrong where that lasts longer. In
    simulated healthy fleets with 12 % of noise none was called slow in 1000. `doctor watch` judges the times of the
    whole training; a rank is not named where twice the time that it waited for a CPU explains the difference. Where
    half or more of what is longer is the wait for the input, it is smoke-input-slow. Of ranks on accelerators
    their waits for input are compared alone: a rank may wait for its device, and so for the others, anywhere.

    Time for which the quota of a control group holds a rank back is no time of its work. A rank is slow as well where
    the kernel counts its quota as used up in half of the periods or more (nr_throttled of nr_periods, cpu.stat), and
    twice as often as that of the median rank: Linux, Documentation/scheduler/sched-bwc.rst. So it is where the quota
    took 30 % of the time in which the rank could run, in however few periods, and twice as much as of the median rank:
    a rank that waits for others most of the time has few periods, and loses them to all. That can be wrong where
    other processes of the same control group use it up, and the job's own would not. Where the host does not show its
    control groups, it is a rank that waited for a CPU for four fifths of its time, twice as long as the median rank,
    while a quarter of its host's CPU time was idle; that can be wrong where another program is bound to the same CPUs.

    With `--for`, the ranks do the same products now and then all the time: a rank is slow as well where a quarter of
    that time shows it, in each of its minutes, by the same rule. A device that is slow when it has become hot is found
    so; the report has the temperatures beside. This can be wrong where another program used that host for so long.
    """
    slow = slow_ranks("compute", paces, started, run)
    yield from slow_rank_findings(
        run,
        slow,
        "in each step {who} computes for {seconds}; the median of its peers: {norm} (confidence {confidence})"
        if run.watched
        else "{who} took {ratio} times the median time of the peers for the same computation: {seconds} against {norm} "
        "(confidence {confidence})",
    )
    yield from quota_findings(run, slow)
    yield from soak_findings(run, slow_in_soak(collectives or {}, devices_of(started or {})), slow)
    if run.watched and not slow and run.plan.backend != "gloo":
        raise Skip("the ranks compute on accelerators: how long each of them computes is not seen")
