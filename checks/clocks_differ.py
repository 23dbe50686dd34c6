from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from statistics import median

from doctor import WARNING, Finding, PerHost, Skip, check, filled
from doctor.facts.visit import ClockOffset

MAX_DIFFERENCE_S = 1.0


@check(severity=WARNING, area="connectivity")
def clocks_differ(clocks: PerHost[ClockOffset]) -> Iterator[Finding]:
    """The clocks of all hosts agree to within one second.

    ## Why it matters
    When a job hangs, the host that failed first is found by comparing the times in the logs of all ranks (plog, the run
    log of HCCL, the flight recorder). If the clocks differ, the wrong host is blamed. The same fault causes tickets and
    certificates that are "not yet valid", and builds that take a newer file for an older one.

    ## What to do
    On {host}, set the clock and keep it set: `systemctl enable --now chronyd && chronyc makestep || timedatectl set-ntp
    true`. All hosts need the same time server (/etc/chrony.conf or /etc/systemd/timesyncd.conf).

    ## In a container
    A container has the clock of its machine. Set it on the machine on which that of {host} runs: `systemctl enable
    --now chronyd && chronyc makestep || timedatectl set-ntp true`, with the same time server on all machines.

    ## Source
    No vendor names a limit. One second is taken from the use: HCCL's own guide to time-outs compares log times of hosts
    in whole seconds. How far apart two clocks are is measured without trust in the network: each host's clock is read
    between two readings of ours, so its offset lies in a known range. Two hosts differ for certain by the gap between
    their ranges, and only that gap is checked.
    """
    others = len(clocks) - 1
    if others < 1:
        raise Skip("only one host: nothing to compare")
    least = sorted(clock.minimum for clock in clocks.values())
    most = sorted(clock.maximum for clock in clocks.values())
    apart = {}
    for host, clock in clocks.items():
        behind = bisect_left(most, clock.minimum - MAX_DIFFERENCE_S)
        ahead = len(clocks) - bisect_right(least, clock.maximum + MAX_DIFFERENCE_S)
        if behind + ahead > others // 2:
            apart[host] = clock
    tie = 2 * len(apart) >= len(clocks)
    rest = [clock for host, clock in clocks.items() if tie or host not in apart]
    low, high = median(clock.minimum for clock in rest), median(clock.maximum for clock in rest)
    for host, clock in apart.items():
        seconds, error = (
            (clock.minimum + clock.maximum - low - high) / 2,
            (clock.maximum - clock.minimum + high - low) / 2,
        )
        yield Finding(
            "the clock is {seconds} s {way} that of {whom} (+/- {error} s)",
            hosts=(host,),
            seconds=round(abs(seconds), 3),
            way="ahead of" if seconds > 0 else "behind",
            error=round(error, 3),
            whom="the fleet's median; no majority shows which clock is right" if tie else "most hosts",
            observed=f"{seconds:+.3f} s",
            expected=filled("at most {0} s from the other hosts", f"{MAX_DIFFERENCE_S:g}"),
        )
