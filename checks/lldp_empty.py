from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.facts.hccn.link_state import DeviceLinks
from doctor.facts.hccn.neighbour import Neighbours


@check(severity=WARNING, area="links")
def lldp_empty(neighbours: PerHost[Neighbours], links: PerHost[DeviceLinks] | None) -> Iterator[Finding]:
    """Every NPU whose link is up receives LLDP from its neighbour.

    ## Why it matters
    Where the other NPUs receive LLDP from their switch, one that does not is on a wrong or misconfigured port, or its
    link is up and carries nothing.

    ## What to do
    Follow the cable of NPU {npu} on {host} to its switch port. `hccn_tool -i {npu} -mac -g` prints its MAC address: the
    switch lists it under that port. Ask the administrators of the switch to turn LLDP on for that port. `hccn_tool -i
    {npu} -lldp -g` stays empty for up to 30 s after a link comes up.

    ## Source
    `hccn_tool -lldp -g`; the vendor's configuration guide takes an empty answer for a fault. Where no NPU
    receives anything, LLDP is switched off, and the check is skipped.
    """
    if not any(host_neighbours.by_npu for host_neighbours in neighbours.values()):
        raise Skip("no NPU receives LLDP: no switch sends it")
    for host, host_neighbours in neighbours.items():
        states = links[host].by_npu if links and host in links else {}
        npus = [npu for npu in host_neighbours.without_neighbour if states.get(npu, "UP") == "UP"]
        if npus:
            yield Finding(
                "no LLDP received by NPU {npus}, although the link is up; other NPUs receive it",
                hosts=[host],
                npu=npus[0],
                npus=npus,
            )
