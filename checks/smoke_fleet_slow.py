from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.facts.smoke import SmokeCollectives
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.figures import collective_speeds
from doctor.smoke.speed.baseline import SLOWER, slower_than
from doctor.smoke.speed.rank_speeds import megabytes


@check(severity=WARNING, area="smoke")
def smoke_fleet_slow(run: SmokeRun, collectives: PerHost[SmokeCollectives]) -> Iterator[Finding]:
    """The fleet's collectives are as fast as in the run that was saved as baseline.

    ## Why it matters
    Hosts are otherwise compared with each other, so that a fleet which is slow as a whole looks healthy: a switch that
    fell back to a lower speed, a library that took TCP instead of RDMA, an update that changed an algorithm.

    ## What to do
    Compare what changed since {baseline}: driver, firmware and library versions (`doctor check --diff`), environment
    variables (`NCCL_*`, `HCCL_*`, `*_SOCKET_IFNAME`), the speeds of the ports (`ethtool NIC | grep Speed`), other jobs
    on the same switches. If the new speed is as it should be: `doctor smoke --save-baseline FILE`.

    ## Source
    Bus bandwidth as nccl-tests define it, of each collective from 64 KB on, against the file of `--baseline`. There is
    no absolute expectation. A warning from 1.5 times as long on, for at least half of what both runs measured. This
    verdict can be wrong where the hosts were busier than in the baseline run: the report shows what kept ranks from
    running.
    """
    if run.baseline is None:
        raise Skip("no --baseline was given")
    if (run.baseline.backend, run.baseline.ranks) != (run.plan.backend, run.plan.world):
        raise Skip(
            f"the baseline is of {run.baseline.ranks} ranks with {run.baseline.backend}, "
            f"this run of {run.plan.world} with {run.plan.backend}"
        )
    compared, slow = slower_than(run.baseline, collective_speeds(run, collectives))
    if not compared:
        raise Skip("the baseline has none of the collectives of this run")
    if not slow or 2 * len(slow) < compared:
        return
    worst, ratio = slow[0]
    pressed = " ".join(text for texts in run.pressure.values() for text in texts[:1])
    yield Finding(
        "{count} of {compared} collectives are more than {limit} times as slow as in the baseline: {op} of {size} runs "
        "at {observed}/s, expected {expected}/s{pressure}",
        count=len(slow),
        compared=compared,
        limit=SLOWER,
        op=worst.op,
        size=megabytes(worst.bytes),
        observed=megabytes(round(worst.busbw)),
        expected=megabytes(round(worst.busbw * ratio)),
        ratio=round(ratio, 2),
        baseline="the baseline",
        pressure=f". {pressed}" if pressed else "",
    )
