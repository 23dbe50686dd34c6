from collections import Counter
from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.kernel_log import DAY, KernelLog, format_age

DRIVERS = "mlx5_core|bnxt_en|ice|i40e|ixgbe|igb|hns3|tg3"
DOWN = rf"(?:(?:{DRIVERS}) \S+ )?([\w.@-]{{2,20}}):? (?:NIC )?Link (?:is )?[Dd]own"
LEAST = 3


@check(severity=WARNING, area="links")
def network_link_flapping(log: KernelLog) -> Iterator[Finding]:
    """No network card's link went down repeatedly in the last 24 hours.

    ## Why it matters
    Each time connections stall or break: a job that runs for hours ends with a timeout.

    ## What to do
    On {host}: `dmesg | grep -i {interface}` and `ethtool -S {interface}`. Clean and reseat the cable or transceiver, on
    both ends, and look at the switch port's log.

    ## Source
    Messages of network drivers in the kernel log: "NAME: Link down", "NAME NIC Link is Down"; three in 24 hours are a
    finding. The first after a start and a single one are usual.
    """
    downs = log.matching(DOWN, DAY)
    counts = Counter(match[1] for _, match in downs)
    for interface, count in counts.items():
        if count >= LEAST:
            newest = next(line for line, match in downs if match[1] == interface)
            yield Finding(
                "the link of {interface} went down {observed} times in 24 hours, last {age}",
                interface=interface,
                observed=count,
                age=format_age(newest.age),
            )
