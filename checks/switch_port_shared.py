from collections import defaultdict
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.analysis.majority import crossed
from doctor.facts.hccn.fleet import Npu, flatten_by_npu, format_npus
from doctor.facts.hccn.neighbour import Neighbours


@check(severity=WARNING, area="links")
def switch_port_shared(neighbours: PerHost[Neighbours]) -> Iterator[Finding]:
    """Every NPU is connected to its own switch port.

    ## Why it matters
    Two NPUs that receive LLDP from one port of a switch share its bandwidth, through a device in between. Or the cable
    of one was moved, and it still shows the old neighbour. Either way the cabling is not as planned.

    ## What to do
    `hccn_tool -i {npu} -lldp -g` on {host} shows its port again; for two minutes after a cable was moved it may be the
    old one. If it stays, follow the cable of NPU {npu} to {port} on the switch {mac}, and connect each NPU to a port of
    its own.

    ## Source
    LLDP (`hccn_tool -lldp -g`): chassis MAC and interface name together name one port. A neighbour is kept for
    120 s by default (IEEE 802.1AB: an interval of 30 s, held four times). Where the NPUs of each number have a switch
    of their own, the same on two thirds of at least three hosts, an NPU at the switch of another number is cabled
    otherwise than planned.
    """
    ports: dict[tuple[str, str], list[Npu]] = defaultdict(list)
    for host_npu, neighbour in flatten_by_npu(neighbours).items():
        if neighbour.kind != "npu" and neighbour.mac and neighbour.port:
            ports[neighbour.mac, neighbour.port].append(host_npu)
    if not ports:
        raise Skip("no NPU reports a switch port")
    for (mac, port), npus in sorted(ports.items()):
        if len(npus) > 1:
            yield Finding(
                "{npus} are on one port, {port} of the switch {mac}; expected a port for each",
                hosts=list(dict.fromkeys(host for host, _ in npus)),
                npu=npus[-1][1],
                npus=format_npus(npus),
                port=port,
                mac=mac,
                observed=len(npus),
                expected=1,
            )
    switches: dict[str, dict[str, str]] = {}
    for (host, npu), neighbour in flatten_by_npu(neighbours).items():
        if neighbour.kind != "npu" and neighbour.mac:
            switches.setdefault(str(npu), {})[host] = neighbour.mac
    for each in crossed(switches):
        own = neighbours[each.host].by_npu[int(each.place)]
        yield Finding(
            "NPU {npu} is at the switch {mac}, where {count} of {total} hosts have NPU {other}; expected {expected}",
            hosts=[each.host],
            npu=int(each.place),
            port=own.port,
            mac=own.mac,
            other=int(each.usual_place),
            count=each.count,
            total=each.total,
            expected=each.expected,
        )
