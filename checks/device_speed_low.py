from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check, filled
from doctor.analysis.majority import most_common_value
from doctor.engine.fact import Unreadable
from doctor.facts.hccn.fleet import families, flatten_by_npu, format_npus, group_by_host
from doctor.facts.hccn.link_state import DeviceLinks, DeviceSpeed
from doctor.facts.hccn.neighbour import Neighbours, switch_port
from doctor.facts.npu import NpuProduct
from doctor.job import LaunchConfig

ADVISORY = ("neighbours",)
RATED = {"A1": 100_000, "A2": 200_000}
"""Mb/s."""


@check(severity=WARNING, area="links", advisory=ADVISORY)
def device_speed_low(
    speeds: PerHost[DeviceSpeed],
    products: PerHost[NpuProduct],
    links: PerHost[DeviceLinks] | None,
    launch: LaunchConfig,
    neighbours: PerHost[Neighbours] | None,
) -> Iterator[Finding]:
    """Every NPU link runs at the product's rated speed.

    ## Why it matters
    Each all-reduce waits for the slowest link: one port at half speed halves the whole job's communication.

    ## What to do
    NPU {npu} of {host} is connected to {switch_port}. Check there: the speed, the module, the breakout mode; then the
    NPU's module, `hccn_tool -i {npu} -optical -g`.

    ## Source
    Rated speed of a port: 100 Gb/s on A1, 200 Gb/s on A2. For others the speed that most NPUs of the fleet have.
    """
    family = families(launch, products)
    speed_by_npu = {host_npu: speed for host_npu, speed in flatten_by_npu(speeds).items() if host_npu[0] in family}
    for product in sorted({family[host] for host, _ in speed_by_npu}):
        fleet = {host_npu: speed for host_npu, speed in speed_by_npu.items() if family[host_npu[0]] == product}
        expected = RATED.get(product) or most_common_value(fleet.values()) or max(fleet.values())
        for host, observed, npus in group_by_host(
            {host_npu: speed for host_npu, speed in fleet.items() if speed < expected}
        ):
            yield Finding(
                "{observed} Gb/s on the link of NPU {npus}; expected {expected} Gb/s",
                hosts=[host],
                npu=npus[0],
                npus=npus,
                switch_port=switch_port(neighbours, host, npus[0]),
                observed=f"{observed / 1000:g}",
                expected=f"{expected / 1000:g}",
            )
    up = [host_npu for host_npu, state in flatten_by_npu(links or {}).items() if state == "UP"]
    mute = [(host, npu) for host, npu in up if host in speeds and npu in speeds[host].unknown]
    if mute:
        raise Unreadable(filled("the link is up, but its speed is not known: {0}", ", ".join(format_npus(mute, 3))))
    if not speed_by_npu:
        raise Skip("no link is up")
