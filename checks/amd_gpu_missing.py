from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.facts.accelerators import OtherAccelerators
from doctor.facts.amd_smi import AmdGpus
from doctor.facts.container import HostContainer


@check(severity=ERROR, area="devices")
def amd_gpu_missing(amd: AmdGpus, accelerators: OtherAccelerators, place: HostContainer | None) -> Iterator[Finding]:
    """amd-smi lists every AMD GPU that is on the PCI bus.

    ## Why it matters
    The driver hides a GPU that did not start or stopped answering: ranks are missing, or the job has fewer GPUs on this
    host than on the others.

    ## What to do
    On {host}: `dmesg | grep -i amdgpu`, `lspci -nnk -d 1002:`, `amd-smi list`. Restart the host with a power cycle
    (`ipmitool chassis power cycle`); if the GPU stays missing, check its slot and power, and have it replaced.

    ## Source
    PCI devices of vendor 1002 that are accelerators by their id or class, against `amd-smi list --json`. Partitions of
    a GPU (CPX and others) count as the GPU that they are of. A container lists those that it was given.
    """
    on_bus = {device.slot for device in accelerators.devices if device.pci_id.startswith("1002:")}
    if place and place.engine:
        raise Skip("a container lists the GPUs that it was given")
    if not on_bus:
        raise Skip("no AMD accelerator on the PCI bus")
    listed = {gpu.bus.rpartition(".")[0] for gpu in amd.gpus}
    absent = sorted(slot for slot in on_bus if slot.rpartition(".")[0] not in listed)
    if absent and not amd.unread:
        yield Finding(
            "{tool} does not list {slots}; expected {expected} GPUs, as on the PCI bus",
            tool=amd.tool,
            slots=[filled("the GPU at {0}", slot) for slot in absent],
            observed=len(on_bus) - len(absent),
            expected=len(on_bus),
        )
