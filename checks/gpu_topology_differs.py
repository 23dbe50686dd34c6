from collections import Counter
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check, filled
from doctor.facts.nvlink import GpuTopology

SHOWN = 4


@check(severity=WARNING, area="links")
def gpu_topology_differs(topology: PerHost[GpuTopology]) -> Iterator[Finding]:
    """The GPUs and network adapters of all hosts are connected in the same way.

    ## Why it matters
    NCCL builds its rings and trees from the connections of every host. Where a GPU reaches its network adapter only
    through the other processor, that host is slower than the rest, and NCCL may choose worse rings for all.

    ## What to do
    Compare `nvidia-smi topo -m` on {host} with another host. The firmware's settings (NUMA nodes per socket, PCIe
    bifurcation), a card in another slot, or an NVLink that is down make the difference: `nvidia-smi nvlink -s` shows a
    link that is down, after which `reboot` brings it up again; the settings of the firmware (`dmidecode -t bios`, the
    setup menu) and the slots are to be those of that host.

    ## Source
    `nvidia-smi topo -m`; the form that most hosts have is the norm.
    """
    if len(topology) < 3:
        raise Skip("fewer than three hosts cannot be compared")
    forms = Counter(own.links for own in topology.values() if not own.unread)
    norm, count = forms.most_common(1)[0] if forms else ((), 0)
    if count <= len(topology) / 2:
        raise Skip("no form has a majority")
    expected = {row[0]: row[1:] for row in norm}
    for host, own in topology.items():
        if own.links == norm or own.unread:
            continue
        devices = [row[0] for row in norm]
        others = {row[0]: row[1:] for row in own.links}
        if [row[0] for row in own.links] != devices:
            differences = [filled("devices {0} in place of {1}", ", ".join(others), ", ".join(devices))]
        else:
            differences = [
                filled("{0}-{1} is {2}, not {3}", row, column, found, wanted)
                for row in devices
                for column, found, wanted in zip(devices, others[row], expected[row], strict=False)
                if found != wanted and row < column
            ]
        yield Finding(
            "{observed}; {count} of {total} hosts are alike",
            hosts=[host],
            observed=differences[:SHOWN],
            differences=len(differences),
            count=count,
            total=len(topology),
        )
