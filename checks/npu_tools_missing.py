from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled, joined
from doctor.analysis.majority import agreed_value
from doctor.facts.container import HostContainer
from doctor.facts.npu import NpuInventory, NpuProduct
from doctor.facts.versions import NpuVersions

ADVISORY = ("product", "installed", "fleet")


@check(severity=ERROR, area="devices", advisory=ADVISORY)
def npu_tools_missing(
    inventory: NpuInventory,
    place: HostContainer | None,
    product: NpuProduct | None,
    installed: NpuVersions | None,
    fleet: PerHost[NpuVersions] | None,
) -> Iterator[Finding]:
    """Every host with NPUs has the driver's tools: npu-smi and, on training products, hccn_tool.

    ## Why it matters
    Both come with the driver package. Where there is an NPU but not the tools, the driver is not installed, or only in
    part, and the NPUs' health, addresses and links cannot be read.

    ## What to do
    On {host}, while no job runs, install the NPU driver package:
    `./Ascend-hdk-{package}-npu-driver_{version}_linux-$(uname -m | tr _ -).run --full`, then `reboot`.

    ## Source
    The public source of the driver package: npu-smi is linked into /usr/local/bin or /usr/local/sbin, hccn_tool lies
    in /usr/local/Ascend/driver/tools. A container has those that it was given, and a job in it needs none of them.
    Inference cards (310, 310P) have no network port, and their driver brings no hccn_tool.
    """
    if not (inventory.pci_count or inventory.devices):
        return
    needed = ["npu-smi"] if inventory.inference else ["npu-smi", "hccn_tool"]
    absent_tools = [tool for tool in needed if tool not in inventory.tools]
    if absent_tools and place and place.engine:
        raise Skip(
            filled("the container was not given {0}; on its host they can be used", joined(" and ", absent_tools))
        )
    if absent_tools:
        drivers = (other.driver for other in (fleet or {}).values())
        yield Finding(
            "{missing} not installed, on a host with {npus} NPUs",
            missing=absent_tools,
            npus=max(inventory.pci_count, len(inventory.devices)),
            package=product.package if product else None,
            version=installed.driver if installed else agreed_value(drivers),
        )
