from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.rdma import RdmaPorts


@check(severity=WARNING, area="links")
def rdma_errors_growing(adapters: RdmaPorts) -> Iterator[Finding]:
    """No error counter of an RDMA port grows while it is watched.

    ## Why it matters
    Errors on the cable, lost packets and repeated ones make the network slow, and end a connection when there are many:
    `Got completion with error 12`.

    ## What to do
    On {host}, for {port}: `grep -r . /sys/class/infiniband/{device}/ports/*/*counters`, with InfiniBand
    `ibqueryerrors`, with an adapter of NVIDIA `mlxlink -d {device} -c`. symbol_error, link_downed, port_rcv_errors: the
    cable, transceiver or switch port. out_of_sequence, packet_seq_err, local_ack_timeout_err, to_retransmits,
    requester_timeout: packets are lost on the way, check PFC and ECN on hosts and switches.

    ## Source
    `counters` and `hw_counters` of /sys/class/infiniband/NAME/ports, read twice, one second apart; NVIDIA,
    Understanding mlx5 Linux Counters; drivers/infiniband/hw of Linux for Broadcom (bnxt_re), AMD (ionic), AWS (efa),
    Microsoft (mana), Huawei (hns) and Intel (irdma), whose names differ.
    """
    for name, port in adapters.ports.items():
        if port.growth:
            yield Finding(
                "error counters of {port} grew within a second: {observed}; expected no growth",
                port=name,
                device=name.partition(":")[0],
                observed={counter: f"+{count}" for counter, count in port.growth.items()},
            )
