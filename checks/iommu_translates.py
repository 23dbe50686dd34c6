from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.gpu import is_virtual_machine
from doctor.facts.host_settings import SERVER_GPUS
from doctor.facts.limits import RdmaAdapters
from doctor.facts.pcie_links import IommuDomains

SHOWN = 6


@check(severity=WARNING, area="devices")
def iommu_translates(iommu: IommuDomains, adapters: RdmaAdapters | None) -> Iterator[Finding]:
    """The IOMMU translates nothing that GPUs address.

    ## Why it matters
    GPUDirect RDMA and transfers between GPUs take the address that one device sees for that of the other. Where the
    IOMMU translates, these transfers fail, hang, or go up to the processor and back: also where it is so on all hosts.

    ## What to do
    On {host}: add iommu=pt to the kernel's command line, `if command -v grubby; then grubby --update-kernel=ALL
    --args=iommu=pt; else sed -i 's/^GRUB_CMDLINE_LINUX="/&iommu=pt /' /etc/default/grub && update-grub; fi`, or switch
    the IOMMU off in the firmware; then `reboot`. `cat /sys/bus/pci/devices/{slot}/iommu_group/type` then prints
    `identity`.

    ## Source
    NVIDIA, GPUDirect RDMA, Supported Systems: IOMMUs "must be disabled or configured for pass-through translation";
    AMD, ROCm system optimization: `iommu=pt`. Read is the type of each GPU's IOMMU group; DMA and DMA-FQ translate.
    Judged are hosts with an RDMA adapter or four GPUs. On Arm the SMMU of servers with NVIDIA's processors translates
    by design, and a virtual machine's belongs to its host: neither is judged.
    """
    if len(iommu.domains) < SERVER_GPUS and not adapters:
        raise Skip("few GPUs, and no RDMA adapter")
    if iommu.architecture != "x86_64":
        raise Skip("only x86 hosts are judged")
    if is_virtual_machine(iommu.machine):
        raise Skip("a virtual machine: the IOMMU belongs to its host")
    translated = sorted(slot for slot, domain in iommu.domains.items() if domain.startswith("DMA"))
    if translated:
        yield Finding(
            "the IOMMU translates for {count} of {total} GPUs: {observed}; expected identity",
            count=len(translated),
            total=len(iommu.domains),
            observed=[*translated[:SHOWN], *(["..."] if len(translated) > SHOWN else [])],
            slot=translated[0],
            expected="identity",
        )
