from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.gpu import GpuCards, NvidiaSmi


@check(severity=ERROR, area="devices")
def gpu_driver_mismatch(tool: NvidiaSmi, cards: GpuCards) -> Iterator[Finding]:
    """The libraries of the NVIDIA driver have the version of the loaded kernel module.

    ## Why it matters
    The driver's package was updated, and the old module is still loaded: no new program can use a GPU, and CUDA reports
    that no device is available. Programs that were started before go on.

    ## What to do
    On {host}, when no job runs: `reboot`. Without a restart: end all programs that use the GPUs, then `rmmod nvidia_drm
    nvidia_modeset nvidia_uvm nvidia` and `nvidia-smi`. So that it does not come back: `apt-mark hold 'nvidia-*'
    'libnvidia-*'`.

    ## Source
    NVML, NVML_ERROR_LIB_RM_VERSION_MISMATCH: "Driver/library version mismatch"; /proc/driver/nvidia/version has the
    version of the module.
    """
    tool.require_report()
    if tool.kind == "mismatch":
        yield Finding(
            "the loaded kernel module is {observed}, the driver's libraries are of another version: {text}",
            observed=cards.driver_version or "of another version",
            text=tool.text,
            expected="one version",
        )
