from collections import defaultdict
from collections.abc import Iterator, Mapping

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.outliers.rates import DAMAGED_DAILY, Count, HighRate, high_rates, worst_of_ports
from doctor.facts.ethernet_links import EthernetCounters, judged

LEAST = 100
"""Of a share of all packets: fewer may come from a cable that was plugged in."""


@check(severity=WARNING, area="links")
def network_errors_many(cards: PerHost[EthernetCounters]) -> Iterator[Finding]:
    """No network card has counted many more errors since its host was started than the other cards of the fleet.

    ## Why it matters
    Each packet with a wrong checksum, or that the card had to drop, is sent again after a timeout. A card that tells
    the switch to wait holds back all hosts that send to it.

    ## What to do
    On {host}: `ethtool -S {interface}`, twice, to see what still grows. Checksums, symbols, FEC or links that went
    down: clean and reseat the cable or transceiver on both ends, then replace it. Discards and pauses: the host takes
    packets too slowly: `ethtool -g {interface}`, the card's PCIe width, busy CPUs. Signal integrity of PCI: reseat the
    card.

    ## Source
    Errors in `ethtool -S` and `ethtool -I --show-fec`, by the names of mlx5, bnxt_en, Intel's drivers, hns3 and r8169,
    divided by the time since the host was started. There is no limit that holds for all: a finding is a counter of at
    least 10 (discards: 1000) whose daily rate is ten times that of the middle of the fleet's hosts, each with the
    middle of its cards that have it, and at least one a day; pauses count from a thousandth of the time. With fewer
    than four cards only links that went down, modules that were too hot and pause storms are judged, and 10,000
    damaged symbols or packets a day: the error rate of 10^-12 that IEEE 802.3 allows lets 8640 bits of 100 Gbit/s
    pass. Of any card one packet of 100,000 with a wrong checksum is too many, where that error rate damages one of
    80,000,000 of 1518 bytes; so is a discarded one of 100, for which no vendor has a limit. It can be wrong where the
    driver was loaded anew, which sets the counters to 0, and where one host has had other work than the rest. Bits that
    FEC corrected are not judged; what the card's RDMA adapter counts as well, rdma-errors-many judges.
    """
    counts: dict[str, dict[tuple[str, str], Count]] = defaultdict(dict)
    for host, fact in cards.items():
        for interface, values in fact.by_interface.items():
            for name, value in values.items():
                row = judged(name)
                if row and not (row.rdma and interface in fact.adapters):
                    counts[name][host, interface] = Count(value, fact.uptime)
    high: dict[str, dict[tuple[str, str], HighRate]] = {}
    for name, ports in counts.items():
        row = judged(name)
        if row:
            few = row.daily if row.alone else DAMAGED_DAILY if row.damage else None
            high[name] = high_rates(ports, few_daily=few, least=row.least, daily=row.daily)
    named = set[tuple[str, str]]()
    for (host, interface), figures in worst_of_ports(high, counts):
        named.add((host, interface))
        yield Finding(
            "{interface} has counted {observed} in {days}, since the host was started; of {total} cards the median of "
            "{counter} is {expected} a day",
            hosts=[host],
            interface=interface,
            **figures,
        )
    for host, fact in cards.items():
        for interface, values in fact.by_interface.items():
            if (host, interface) not in named:
                yield from (finding.with_host(host) for finding in _shares(interface, values))


def _shares(interface: str, values: Mapping[str, int]) -> Iterator[Finding]:
    """What is too much of the packets that went the same way, alone and without other cards."""
    for name, value in values.items():
        row = judged(name)
        way = name.removeprefix("port.")[:2]
        packets = values.get(f"{way}_packets_phy") or values.get(f"{way}_packets", 0)
        if row and row.share and value >= max(LEAST, row.least) and value > row.share * packets > 0:
            yield Finding(
                "{interface} has counted {observed} of {packets} packets; expected at most one in {expected}",
                interface=interface,
                observed={name: value},
                packets=packets,
                expected=round(1 / row.share),
            )
