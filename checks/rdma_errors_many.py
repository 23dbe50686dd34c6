from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.outliers.rates import DAMAGED_DAILY, LEAST, Count, HighRate, high_rates, worst_of_ports
from doctor.facts.rdma import PACKETS, RdmaPorts

COUNTERS = (
    *("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "local_link_integrity_errors"),
    *("excessive_buffer_overrun_errors", "rx_icrc_encapsulated", "req_transport_retries_exceeded"),
)
"""Those that no program and no congestion makes."""
OF_TRAFFIC = (
    *("local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "roce_adp_retrans", "np_cnp_sent"),
    *("to_retransmits", "seq_err_naks_rcvd", "oos_drop_count", "tx_cnp_pkts"),
    *("tx_rdma_ack_timeout", "req_rx_pkt_seq_err", "requester_timeout", "responder_oos", "sent_cnps"),
)
"""Lost packets and congestion, of mlx5, bnxt_re, ionic and MANA: those of a port with much traffic are many."""
MANY = 1000
FEW_DAILY = {
    "link_downed": 1.0,
    **dict.fromkeys(("symbol_error", "rx_icrc_encapsulated", "local_ack_timeout_err", "packet_seq_err"), DAMAGED_DAILY),
}
"""What is judged also where a fleet has fewer than four ports, and from how many a day on."""


@check(severity=WARNING, area="links")
def rdma_errors_many(adapters: PerHost[RdmaPorts]) -> Iterator[Finding]:
    """No RDMA port has counted many more errors since its host was started than the other ports of the fleet.

    ## Why it matters
    A cable or transceiver that is about to fail loses its link now and then, and has errors between. It may be quiet in
    the second in which a check looks, and end the job an hour later. A way that loses packets makes RoCE many times
    slower, and the connection ends with `Got completion with error 12` when a packet is lost eight times.

    ## What to do
    On {host}, for {port}: `grep -r . /sys/class/infiniband/{device}/ports/*/*counters`, with InfiniBand
    `ibqueryerrors`, with an adapter of NVIDIA `mlxlink -d {device} -c`. Clean and reseat the cable or transceiver on
    both ends, then replace it; look at the switch port's counters. `perfquery -R` sets the counters of InfiniBand to 0.
    Timeouts, packets out of sequence and notices of congestion (CNP): compare PFC and ECN with the other hosts'.
    `mlnx_qos -i` with the port's interface shows them; the switch port has settings of its own.

    ## Source
    `counters` and `hw_counters` of /sys/class/infiniband/NAME/ports, divided by the time since the host was started.
    There is no limit that holds for all: a finding is a counter of at least 10 whose daily rate is ten times that of
    the middle of the fleet's hosts, each with the middle of its ports, and at least one a day; with fewer than four
    ports, only lost links are judged, and 10,000 damaged or lost symbols or packets a day: the error rate of 10^-12
    that IEEE 802.3 allows lets 8640 bits of 100 Gbit/s pass. Counters of lost packets and of congestion count from 1000
    on, and only where they are ten times those of the middle for each packet received, too: a host that has worked more
    is no finding. A counter that somebody set to 0 hides what was before; a host whose
    switch was restarted often has the same counts on all of its ports as the others.
    """
    counts: dict[str, dict[tuple[str, str], Count]] = {}
    packets: dict[tuple[str, str], int] = {}
    for host, own in adapters.items():
        for device in own.devices:
            for port in device.ports:
                place = (host, f"{device.name}:{port.number}")
                packets[place] = max(port.after.get(name, 0) for name in PACKETS)
                for name in (*COUNTERS, *OF_TRAFFIC):
                    if name in port.after:
                        counts.setdefault(name, {})[place] = Count(port.after[name], device.uptime)
    high: dict[str, dict[tuple[str, str], HighRate]] = {}
    for name, ports in counts.items():
        few, least = FEW_DAILY.get(name), MANY if name in OF_TRAFFIC else LEAST
        by_packets = {place: Count(count.value, packets[place]) for place, count in ports.items()}
        often = high_rates(by_packets, few_daily=0.0, daily=0.0)
        high[name] = {
            place: rate
            for place, rate in high_rates(ports, few_daily=few, least=least).items()
            if name in COUNTERS or place in often or not packets[place]
        }
    for (host, label), values in worst_of_ports(high, counts):
        yield Finding(
            "{port} has counted {observed} in {days}, since the host was started; of {total} ports the median of "
            "{counter} is {expected} a day",
            hosts=[host],
            port=label,
            device=label.partition(":")[0],
            **values,
        )
