from collections.abc import Iterator, Mapping
from itertools import combinations

from doctor import WARNING, Finding, PerHost, Skip, check, filled
from doctor.analysis.majority import tied
from doctor.engine.grouping import lists_by_key
from doctor.facts.gpu import GpuInventory
from doctor.facts.nvlink import GpuTopology, board_size

SHOWN = 4
FEWEST = 4
"""GPUs of one baseboard: one without NVLink to the others is odd. Not of SXM2, which does not join all."""
ADVISORY = ("inventory",)
CAUSES = {"nvlink-down": ("gpu",)}
Form = tuple[tuple[str, ...], ...]


@check(severity=WARNING, area="links", follows_from=CAUSES, advisory=ADVISORY)
def gpu_topology_differs(topology: PerHost[GpuTopology], inventory: PerHost[GpuInventory] | None) -> Iterator[Finding]:
    """The GPUs and network adapters of all hosts are connected in the same way.

    ## Why it matters
    NCCL builds its rings and trees from the connections of every host. Where a GPU reaches its network adapter only
    through the other processor, that host is slower than the rest, and NCCL may choose worse rings for all.

    ## What to do
    Compare `nvidia-smi topo -m` on {host} with another host. `nvidia-smi nvlink -s` shows an NVLink that is down;
    `reboot` brings it up again. Else the slot of a card or a setting of the firmware differs (NUMA nodes per socket,
    PCIe bifurcation). Make the slots and the settings (`dmidecode -t bios`, the setup menu) those of that host.

    ## Source
    `nvidia-smi topo -m`; the form that more than half of the hosts have is the norm; without such a majority the
    difference is named, and no host. A baseboard joins all its GPUs: on one host as well, a GPU without NVLink is a
    finding where the others have it. GPUs in MIG mode are left out.
    """
    named: set[str] = set()
    for host, own in topology.items():
        listed = inventory[host].gpus if inventory and host in inventory and not own.unread else ()
        for product in sorted({gpu.name for gpu in listed if board_size(gpu.name) and "SXM2" not in gpu.name}):
            alike = [f"GPU{gpu.index}" for gpu in listed if gpu.name == product and gpu.mig != "Enabled"]
            for name, link in _without_nvlink(own.links, alike):
                named.add(host)
                yield Finding(
                    "GPU {gpu} is connected by {observed}; the other {total} GPUs {product} by {expected}",
                    hosts=[host],
                    gpu=int(name.removeprefix("GPU")),
                    observed=link,
                    total=len(alike) - 1,
                    product=product,
                    expected="NVLink",
                )
    compared = {host: own.links for host, own in topology.items() if not own.unread and host not in named}
    forms = lists_by_key((links, host) for host, links in compared.items())
    if len(compared) < 2:
        raise Skip("a single host cannot be compared")
    norm, alike = max(forms.items(), key=lambda form: len(form[1]))
    if 2 * len(alike) <= len(compared):
        if len(forms) > 1:
            yield tied(dict(sorted(_named_apart(forms).items())))
        return
    for host, links in compared.items():
        if links == norm:
            continue
        differences = _differences(links, norm)
        yield Finding(
            "{observed}; {count} of {total} hosts are alike",
            hosts=[host],
            observed=differences[:SHOWN],
            differences=len(differences),
            count=len(alike),
            total=len(compared),
        )


def _without_nvlink(links: Form, alike: list[str]) -> Iterator[tuple[str, str]]:
    """The one of these GPUs without NVLink to any, where the others have it to each other, and what it has."""
    names = [row[0] for row in links]
    cells = {(row[0], other): cell for row in links for other, cell in zip(names, row[1:], strict=False)}
    pairs = [pair for pair in combinations(alike, 2) if pair in cells]
    dark = [pair for pair in pairs if not cells[pair].startswith("NV")]
    for name in alike if len(alike) >= FEWEST else ():
        if dark == [pair for pair in pairs if name in pair]:
            yield name, ", ".join(sorted({cells[pair] for pair in dark}))


def _differences(found: Form, norm: Form) -> list[str]:
    """Where a form differs from another one, in words."""
    expected, others = {row[0]: row[1:] for row in norm}, {row[0]: row[1:] for row in found}
    devices = [*expected]
    if [*others] != devices:
        return [filled("devices {0} in place of {1}", ", ".join(others), ", ".join(devices))]
    return [
        filled("{0}-{1} is {2}, not {3}", row, column, own, wanted)
        for row in devices
        for column, own, wanted in zip(devices, others[row], expected[row], strict=False)
        if own != wanted and row < column
    ]


def _named_apart(forms: Mapping[Form, list[str]]) -> dict[str, list[str]]:
    """The hosts of each form, by what tells it from the others: a few links, or else the devices."""
    tables = {form: {(row[0], cell): link for row in form for cell, link in enumerate(row[1:])} for form in forms}
    devices = {form: [row[0] for row in form] for form in forms}
    odd = [place for place in next(iter(tables.values())) if len({table.get(place) for table in tables.values()}) > 1]
    named: dict[str, list[str]] = {}
    for form, hosts in forms.items():
        links = (
            f"{row}-{devices[form][cell]} {tables[form][row, cell]}"
            for row, cell in odd[:SHOWN]
            if cell < len(devices[form]) and row <= devices[form][cell]
        )
        alike = len({tuple(names) for names in devices.values()}) == 1
        named.setdefault(", ".join(links) if alike else ", ".join(devices[form]), []).extend(hosts)
    return named
