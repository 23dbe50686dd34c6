from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.engine.fact import Unreadable
from doctor.facts.gpu import GpuCards, is_virtual_machine
from doctor.facts.limits import RdmaAdapters

SHOWN = 6


@check(severity=WARNING, area="devices")
def pcie_acs_redirects(cards: GpuCards, adapters: RdmaAdapters | None) -> Iterator[Finding]:
    """PCIe switches let GPUs and network adapters reach each other directly.

    ## Why it matters
    With access control services (ACS) on, every transfer between two devices goes up to the processor and back: NCCL
    and GPUDirect RDMA are much slower, or hang.

    ## What to do
    On {host}, after each start of the host: `setpci -s {bridge} ECAP_ACS+0x6.w=0000`{others}. For good: switch ACS off
    in the firmware of the host (BIOS), where it often stands beside the IOMMU (VT-d).

    ## Source
    NCCL User Guide, Troubleshooting, PCI Access Control Services: "ACS redirects PCI point-to-point traffic to the CPU
    root complex"; `lspci -vvv | grep ACSCtl`. Read are the bits for requests, completions and upstream forwarding. In
    a virtual machine ACS is needed, and belongs to its host.
    """
    if cards.pci < 2 and not adapters:
        raise Skip("one GPU, and no RDMA adapter")
    if is_virtual_machine(cards.machine):
        raise Skip("a virtual machine: ACS belongs to its host")
    if cards.redirecting is None:
        raise Unreadable("only root may read the settings of PCIe bridges: use --sudo")
    if cards.redirecting:
        yield Finding(
            "ACS is on for {count} of the PCIe bridges: {observed}; expected none",
            count=len(cards.redirecting),
            observed=[*cards.redirecting[:SHOWN], *(["..."] if len(cards.redirecting) > SHOWN else [])],
            bridge=cards.redirecting[0],
            others=", likewise for the other bridges" if len(cards.redirecting) > 1 else "",
        )
