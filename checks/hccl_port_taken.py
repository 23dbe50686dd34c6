from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.facts.npu import NpuInventory
from doctor.facts.ports import Listeners, ListeningSocket, format_ports, required_hccl_ports, single_port_ranges
from doctor.job import LaunchConfig


@check(severity=ERROR, area="kernel")
def hccl_port_taken(listeners: Listeners, npus: NpuInventory, launch: LaunchConfig) -> Iterator[Finding]:
    """HCCL's host ports are free.

    ## Why it matters
    HCCL listens on fixed host ports. One that another program holds, most often a leftover process of the last run,
    ends the job at its start (EI0019, "have already been bound").

    ## What to do
    Find the process on {host}: `ss -tanp "sport = :{port}"`. Leave another user's job alone and give yours other ports:
    `export HCCL_IF_BASE_PORT={free_port}` on all ranks.

    - Leftover: if it is left of an earlier job, `kill {pid}` ends it.
    - Service: it belongs to the host itself; leave it alone.

    ## Source
    HCCL documentation, EI0019 and HCCL_IF_BASE_PORT. A socket of an outgoing connection blocks the port as well as
    one that listens.
    """
    hccl_ports = set(required_hccl_ports(launch))
    held: dict[tuple[int, str, str], list[ListeningSocket]] = defaultdict(list)
    for socket in listeners.sockets:
        if socket.port in hccl_ports:
            held[socket.pid, socket.user, socket.command].append(socket)
    for sockets in held.values():
        first, taken = sockets[0], sorted({socket.port for socket in sockets})
        yield Finding(
            "TCP port {ports} is taken by {owner}",
            ports=format_ports(single_port_ranges(taken)),
            **first.values,
            free_port=listeners.free_behind(max(hccl_ports), len(hccl_ports)),
            observed=filled("{0} of {1} ports taken", len(taken), len(hccl_ports)),
            expected=filled("{0} free", format_ports(launch.hccl_ports)),
        )
