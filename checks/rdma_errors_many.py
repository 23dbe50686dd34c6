from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.outliers.rates import DAMAGED_DAILY, Count, high_rates
from doctor.facts.rdma import RdmaPorts

COUNTERS = (
    *("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "local_link_integrity_errors"),
    *("excessive_buffer_overrun_errors", "rx_icrc_encapsulated", "req_transport_retries_exceeded"),
)
"""Those that no program and no congestion makes."""
FEW_DAILY = {"link_downed": 1.0, "symbol_error": DAMAGED_DAILY, "rx_icrc_encapsulated": DAMAGED_DAILY}
"""What is judged also where a fleet has fewer than four ports, and from how many a day on."""


@check(severity=WARNING, area="links")
def rdma_errors_many(adapters: PerHost[RdmaPorts]) -> Iterator[Finding]:
    """No RDMA port has counted many more errors since its host was started than the other ports of the fleet.

    ## Why it matters
    A cable or transceiver that is about to fail loses its link now and then, and has errors between. It may be quiet in
    the second in which a check looks, and end the job an hour later.

    ## What to do
    On {host}, for {port}: `grep -r . /sys/class/infiniband/{device}/ports/*/*counters`, with InfiniBand
    `ibqueryerrors`, with an adapter of NVIDIA `mlxlink -d {device} -c`. Clean and reseat the cable or transceiver on
    both ends, then replace it; look at the switch port's counters. `perfquery -R` sets the counters of InfiniBand to 0.

    ## Source
    `counters` and `hw_counters` of /sys/class/infiniband/NAME/ports, divided by the time since the host was started.
    There is no limit that holds for all: a finding is a counter of at least 10 whose daily rate is ten times that of
    the middle of the fleet's hosts, each with the middle of its ports, and at least one a day; with fewer than four
    ports, only lost links are judged, and 10,000 damaged symbols or packets a day: the error rate of 10^-12 that IEEE
    802.3 allows lets 8640 bits of 100 Gbit/s pass. A counter that somebody set to 0 hides what was before; a host whose
    switch was restarted often has the same counts on all of its ports as the others.
    """
    counts: dict[str, dict[tuple[str, str], Count]] = {}
    for host, own in adapters.items():
        for device in own.devices:
            for port in device.ports:
                for name, value in port.after.items():
                    if name in COUNTERS:
                        label = f"{device.name}:{port.number}"
                        counts.setdefault(name, {})[host, label] = Count(value, device.uptime)
    for name, ports in counts.items():
        for (host, label), high in high_rates(ports, few_daily=FEW_DAILY.get(name)).items():
            yield Finding(
                "{port} has counted {observed} {counter} in {days}, since the host was started; the median of {total} "
                "ports is {expected} a day",
                hosts=[host],
                port=label,
                device=label.partition(":")[0],
                counter=name,
                observed=high.count,
                days=high.days,
                expected=high.usual,
                total=len(ports),
            )
