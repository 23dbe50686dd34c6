from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.analysis.majority import slower_sibling, unlike_most
from doctor.engine.grouping import lists_by_key
from doctor.facts.container import HostContainer
from doctor.facts.pcie_links import PcieLink, PcieLinks

NVIDIA = "10de"
ACCELERATORS = ("03", "12")
ADVISORY = ("places",)
CAUSES = {"gpu-lost": ("device=devices",)}


@check(severity=ERROR, area="links", follows_from=CAUSES, advisory=ADVISORY)
def pcie_link_degraded(links: PerHost[PcieLinks], places: PerHost[HostContainer] | None) -> Iterator[Finding]:
    """Every accelerator, network card and NVMe disk answers over PCIe, with the lanes and the speed it should have.

    ## Why it matters
    A device that reads as ones has dropped out, although it is still listed: what opens it fails or hangs. A link that
    came up with half of its lanes, or at a lower speed, halves every copy between host and NPU, and all other ranks
    wait for the slowest.

    ## What to do
    On {host}: `lspci -vv -s {slot} | grep -E 'LnkCap|LnkSta'` and `dmesg | grep -E '{slot}|AER|pcieport'`. Shut the
    host down, not only restart it: `ipmitool chassis power cycle`. If it is the same, clean and reseat the card and its
    riser, compare the PCIe settings of the firmware with another host, then have riser or card replaced.

    ## Source
    `current_link_width`, `current_link_speed`, `max_link_*` of /sys/bus/pci/devices (Linux ABI, sysfs-bus-pci). A
    device that does not answer shows 63 lanes: all bits of its register are set (PCIe, Link Status); one that is
    suspended, or kept for a virtual machine, may do so. Fewer lanes than an accelerator and its port support are a
    warning on one host; so is a lower speed of an NPU, which keeps its speed while it is idle, as others do not. All
    are compared with the same card in the same slot of other hosts. On one host the only one with fewer lanes among
    four or more of a kind is a finding, unless its slot has no more. gpu-pcie-width-low has the lanes of NVIDIA's GPUs,
    rdma-port-slow those of RDMA adapters. In virtual machines only silent devices count. A silent accelerator or
    RDMA adapter is an error; in a container, which may not use it, and of another network card or a disk, which the job
    may do without, it is a warning.
    """
    peers: dict[tuple[str, str], PcieLink] = {}
    for host, of_host in links.items():
        place = places.get(host) if places else None
        for link in of_host.links:
            if link.is_silent:
                text = "{kind} at {slot} is on the PCI bus and does not answer: its registers read as ones"
                yield _finding(text, host, link).as_warning(bool(place and place.engine) or not _carries_jobs(link))
            elif not of_host.is_virtual and _lacks(link):
                text = "the PCIe link of {kind} at {slot} is {observed}; both its ends support {expected}"
                values = {"observed": str(link.rate), "expected": str(link.supported)}
                yield _finding(text, host, link, **values).as_warning(True)
            elif not of_host.is_virtual and _has_peers(link):
                peers[host, link.slot] = link
    yield from _unlike_peers(peers)


def _unlike_peers(peers: dict[tuple[str, str], PcieLink]) -> Iterator[Finding]:
    """Links that differ from those of the same slot on other hosts; and on its own host from all others of its kind."""
    named: set[tuple[str, str]] = set()
    for alike in lists_by_key(((link.pci_id, slot), (host, slot)) for (host, slot), link in peers.items()).values():
        for host, slot, observed, expected, count in unlike_most({place: _compared(peers[place]) for place in alike}):
            text = "the PCIe link of {kind} at {slot} is {observed}; {count} of {total} hosts have {expected}"
            values = {"observed": observed, "expected": expected, "count": count, "total": len(alike)}
            named.add((host, slot))
            yield _finding(text, host, peers[host, slot], **values).as_warning(True)
    text = "the PCIe link of {kind} at {slot} has {observed} lanes; {count} of {total} of its kind have {expected}"
    lanes = lists_by_key((link.pci_id, (place, link.rate.lanes)) for place, link in peers.items() if link.rate)
    for of_kind in lanes.values():
        for finding in slower_sibling(dict(of_kind), text, "slot"):
            place = (finding.hosts[0], finding.values["slot"])
            if place not in named and not peers[place].is_all_that_fits:
                yield _finding(text, place[0], peers[place], **finding.values).as_warning(True)


def _finding(text: str, host: str, link: PcieLink, **values: object) -> Finding:
    of_device = {"kind": link.kind, "slot": link.slot, "device": link.slot.partition(".")[0]}
    return Finding(text, hosts=[host], **{**values, **of_device})


def _carries_jobs(link: PcieLink) -> bool:
    """Whether a job is on it: on an accelerator, or an RDMA adapter. It may do without another card or a disk."""
    return link.is_rdma or link.pci_class.startswith(ACCELERATORS)


def _lacks(link: PcieLink) -> bool:
    """An accelerator whose link has less than both its ends support: fewer lanes, of an NPU also a lower speed."""
    rate, supported = link.rate, link.supported
    if not link.pci_class.startswith("12") or not rate or not supported:
        return False
    return rate.lanes < supported.lanes or (link.is_npu and rate.gigatransfers < supported.gigatransfers)


def _has_peers(link: PcieLink) -> bool:
    """Whether it is compared with the same card in the same slot of other hosts."""
    return bool(link.rate) and not (link.is_rdma or link.pci_id.startswith(NVIDIA))


def _compared(link: PcieLink) -> str:
    is_steady = link.is_npu or link.pci_class.startswith(("01", "02"))
    return str(link.rate) if is_steady or not link.rate else filled("x{0}", link.rate.lanes)
