from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.hccn.link_state import UbPorts

LEAST_PEERS = 2


@check(severity=WARNING, area="links")
def ub_port_down(ports: PerHost[UbPorts]) -> Iterator[Finding]:
    """Every UB port of an NPU of the 950 family has a link, where its peers have one.

    ## Why it matters
    NPUs of the 950 family reach each other by UB. Over a port without a link HCCL reaches its neighbour by a longer way
    or not at all, and every collective is as slow as that NPU.

    ## What to do
    On {host}: `hccn_tool -g -port_info -i {npu} -u {die} -p {port}` shows whether the port is on (`port_enable`), and
    `hccn_tool -g -link_stat -i {npu} -u {die} -p {port}` when it went down. Then check its cable or backplane and the
    port at the other end; when both are sound, have the vendor replace the board.

    ## Source
    `hccn_tool -g -dev_info`, column Link Status (Ascend 950 HCCN Tool, Querying the NPU Device Information). Which
    ports are cabled depends on the machine, and is not public for all: the norm is the same port of the same NPU on
    most of the other hosts, or with fewer than three hosts that of most other NPUs of the host.
    """
    for host, own in ports.items():
        for npu, links in own.by_npu.items():
            down = [port for port, state in links.items() if state != "UP" and _is_expected(ports, host, npu, port)]
            if down:
                yield Finding(
                    "UB port {ports} (die/port) of NPU {npu} is down; its peers have a link",
                    hosts=[host],
                    npu=npu,
                    ports=down,
                    die=down[0].partition("/")[0],
                    port=down[0].partition("/")[2],
                )


def _is_expected(ports: PerHost[UbPorts], host: str, npu: int, port: str) -> bool:
    """Most of the ports that are alike have a link."""
    on_hosts = [other.by_npu[npu] for name, other in ports.items() if name != host and npu in other.by_npu]
    on_host = [links for number, links in ports[host].by_npu.items() if number != npu]
    alike = on_hosts if len(on_hosts) >= LEAST_PEERS else on_host
    states = [links[port] for links in alike if port in links]
    return len(states) >= LEAST_PEERS and states.count("UP") > len(states) / 2
