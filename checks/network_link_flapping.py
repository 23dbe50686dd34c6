from collections.abc import Iterator

from doctor import WARNING, Finding, ago_text, check
from doctor.facts.kernel_log import KernelLog, LogLine

LEAST = 3


@check(severity=WARNING, area="links")
def network_link_flapping(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log, up to 24 hours back, holds no network card's link that went down repeatedly.

    ## Why it matters
    Each time connections stall or break: a job that runs for hours ends with a timeout.

    ## What to do
    On {host}: `dmesg | grep -i {interface}` and `ethtool -S {interface}`. Clean and reseat the cable or transceiver, on
    both ends, and look at the switch port's log.

    ## Source
    Messages of network drivers in the kernel log: "NAME: Link down", "NAME NIC Link is Down", "NAME: link down" (hns3),
    "HINIC_Link is DOWN", and of RDMA adapters "NAME: Port: 1 Link DOWN"; three in 24 hours are a finding. The
    first after a start and a single one are usual.
    """
    downs: dict[str, list[LogLine]] = {}
    cards: dict[str, set[str]] = {}
    adapters: dict[str, str] = {}
    for line, match in log.of_row("link-down"):
        name, card = match["device"], match["card"]
        downs.setdefault(name, []).append(line)
        if match["port"]:
            adapters[name] = card or ""
        else:
            cards.setdefault(card or name, set()).add(name)
    for interface, lines in downs.items():
        told_by_interface = any(len(downs[name]) >= LEAST for name in cards.get(adapters.get(interface, ""), ()))
        if len(lines) >= LEAST and not told_by_interface:
            yield Finding(
                "the link of {interface} went down {observed} times in 24 hours, last {age}",
                interface=interface,
                observed=len(lines),
                age=ago_text(lines[0].age),
            )
