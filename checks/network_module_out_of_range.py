from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import unlike_fec
from doctor.facts.ethernet_links import EthernetModules
from doctor.facts.rdma_modules import RdmaModules
from doctor.facts.reported_value import OpticalReading, readings_outside


@check(severity=WARNING, area="links")
def network_module_out_of_range(
    modules: PerHost[EthernetModules], rdma: PerHost[RdmaModules] | None
) -> Iterator[Finding]:
    """The module of every fast network card with a link works within its own limits, with the FEC of its peers.

    ## Why it matters
    Weak light or a hot module comes before a link that flaps: packets are lost and sent again, the job becomes slower,
    and fails later.

    ## What to do
    On {host}: `ethtool -m {interface}` shows the module.
    - Low Rx power: clean the fibre on both ends, then compare the Tx power at its other end.
    - High temperature: `ipmitool sdr type Fan` shows the fans; have one that stands still replaced, and clean the
      air ducts. If it stays high, replace the module.
    - Another value: replace the module.
    - Another FEC: `ethtool --set-fec {interface} encoding {encoding}`, and the same on the switch's port.

    ## Source
    `ethtool -m` (SFF-8472, SFF-8636 and CMIS modules): the values of this moment against the module's own alarm
    limits, and where it has them its warning limits. Its alarm flags are not judged: they may be left from a link that
    went down earlier. A lane whose laser has no current is not driven, as of a card that uses one of four. Copper
    cables measure nothing. Memory that reads as zeros or ones, or limits that contradict each other, is unknown. In a
    virtual machine a module that does not answer is its host's. Of adapters that mlxlink shows,
    rdma-module-out-of-range judges the module. FEC (`ethtool --show-fec`) against that of three quarters of the hosts,
    at one speed and with one kind of cable that the module names; IEEE 802.3 lets short copper cables and long fibres
    have another one.
    """
    judged = {(host, device) for host, own in (rdma or {}).items() for device in own.by_device}
    ports = {
        (host, interface): module
        for host, own in modules.items()
        for interface, module in own.by_interface.items()
        if (host, module.adapter) not in judged
    }
    for (host, interface), module in ports.items():
        alarms = readings_outside(module.alarms)
        warnings = readings_outside(module.warnings)
        for quantity in sorted({*alarms, *warnings}):
            lanes = alarms.get(quantity) or warnings[quantity]
            finding = _finding(interface, quantity, lanes, "alarm" if quantity in alarms else "warning")
            yield finding.with_host(host)
    fec = {
        port: (f"{module.speed} Mbit/s", module.technology, module.fec)
        for port, module in ports.items()
        if module.technology
    }
    yield from unlike_fec(fec)


def _finding(interface: str, quantity: str, lanes: dict[str, OpticalReading], kind: str) -> Finding:
    first = next(iter(lanes.values()))
    return Finding(
        "the module of {interface} has {observed} {unit}; its own {kind} limits are {low} and {high} {unit}",
        interface=interface,
        observed={name: reading.value for name, reading in lanes.items()},
        kind=kind,
        low=first.low,
        high=first.high,
        unit=first.unit,
        encoding="auto",
        case=first.case(quantity),
    )
