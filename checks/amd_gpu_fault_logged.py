from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.facts.accelerators import OtherAccelerators
from doctor.facts.kernel_log import KernelLog

ACCELERATORS = ("accelerators",)


@check(severity=ERROR, area="devices", about=ACCELERATORS)
def amd_gpu_fault_logged(log: KernelLog, accelerators: OtherAccelerators | None) -> Iterator[Finding]:
    """The kernel's log holds no fault of an AMD GPU.

    ## Why it matters
    Errors of the hardware that could not be corrected end the program that meets them, or make it compute wrongly. When
    the driver could not reset or start a GPU, no program can use it; the driver hides it, and ranks are missing.

    ## What to do
    On {host}, for the GPU at {device}: `dmesg | grep -i amdgpu`, `amd-smi metric -e`, `amd-smi bad-pages`. Reset it
    while no program uses it: `amd-smi reset -G -g all`, or restart the host (`reboot`). Have it replaced when the
    errors return, and where it has too many damaged pages.

    ## Source
    Messages of drivers/gpu/drm/amd/amdgpu: amdgpu_ras.c (RAS blocks), amdgpu_ras_eeprom.c (damaged pages),
    amdgpu_device.c (resets, the start); AMD's own node-scraper takes the same for errors. What a later "GPU reset
    succeeded" of the same GPU clears is left out. Page faults of programs, and corrected errors, are no finding; a GPU
    that was reset once, and deferred errors, are warnings.
    """
    for fault in log.faults("amd-gpu-fault-logged"):
        part = fault.groups.get("part", "")
        yield Finding(
            "the AMD GPU at {device}: {meaning}{where}, {count} times, last {age}: {text}"
            if fault.device
            else "an AMD GPU: {meaning}{where}, {count} times, last {age}: {text}",
            device=fault.device,
            meaning=fault.row.meaning,
            where=filled(" ({text})", text=part) if part else "",
            **fault.values,
        ).as_warning(not fault.row.demands)
