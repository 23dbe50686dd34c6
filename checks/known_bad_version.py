from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check, filled
from doctor.engine.version_matrix import known_bad
from doctor.facts.amd_smi import AmdGpus
from doctor.facts.gpu import GpuInventory
from doctor.facts.pip_commands import install_command
from doctor.facts.python_env import PythonEnv
from doctor.facts.rdma import RdmaPorts
from doctor.facts.versions import RocmVersion, rocm_of_job

OF_SOME = ("gpus", "amd", "rocm", "adapters")
"""What tells the versions of one vendor's software, where a host has it."""
ADAPTERS = {
    "MT4119": "ConnectX-5 firmware",
    "MT4123": "ConnectX-6 firmware",
    "MT4125": "ConnectX-6 Dx firmware",
    "MT4129": "ConnectX-7 firmware",
}
"""By the type in sysfs, which is the PCI device's number (pci.ids)."""


CAUSES = {"nccl-version-differs": ("observed",)}
"""Its remedy installs the version of the other hosts; where that has the fault, they have a finding of their own."""


@check(severity=WARNING, area="versions", advisory=OF_SOME, follows_from=CAUSES)
def known_bad_version(
    python: PythonEnv,
    gpus: GpuInventory | None,
    amd: AmdGpus | None,
    rocm: RocmVersion | None,
    adapters: RdmaPorts | None,
) -> Iterator[Finding]:
    """The NCCL, torch_npu, ROCm, NVIDIA driver and ConnectX firmware that the job uses have no published fault.

    ## Why it matters
    Its maker has published the fault, and nothing in the job's log names it: a job that hangs or gives wrong sums looks
    like one with a bad link.

    ## What to do
    On {host}, install {component} {expected} or newer for the job. {command} {instead}

    ## Source
    Release notes of NCCL, RCCL, ROCm and the firmware of ConnectX, and issues of PyTorch and vllm-ascend, which
    doctor/engine/known_bad_versions.toml names with each version. A fault of some GPUs alone is looked for where
    nvidia-smi or amd-smi lists such GPUs. A version that is not in the table may have faults, too.
    """
    names = [gpu.name for gpu in gpus.gpus] if gpus else []
    names += [gpu.name for gpu in amd.gpus] if amd else []
    versions = [pair for pair in _versions(python, gpus, amd, rocm, adapters) if pair[1]]
    if not versions:
        raise Skip("the job uses no NCCL, torch_npu, ROCm, NVIDIA driver or ConnectX adapter")
    packages = {"NCCL": python.nccl[0].replace("_", "-") if python.nccl else "", "torch_npu": "torch_npu"}
    for component, version in versions:
        package = packages.get(component, "")
        for row in known_bad(component, version, names):
            yield Finding(
                "{component} {observed}: {fault}; fixed in {expected}",
                component=component,
                observed=version,
                expected=row.fixed,
                fault=row.fault,
                command=package and filled("`{0}`.", install_command(python.typed, package, row.fixed)),
                instead=row.instead and filled("Until then, in the job's script: `export {0}`.", row.instead),
                source=row.source,
            )


def _versions(
    python: PythonEnv,
    gpus: GpuInventory | None,
    amd: AmdGpus | None,
    rocm: RocmVersion | None,
    adapters: RdmaPorts | None,
) -> list[tuple[str, str]]:
    """Component, as known_bad_versions.toml calls it, and version; empty where the host or the job does not have it."""
    firmware = {
        (ADAPTERS[device.type], device.firmware)
        for device in (adapters.devices if adapters else ())
        if device.type in ADAPTERS and not device.virtual
    }
    return [
        ("NCCL", python.nccl[1] if python.nccl else ""),
        ("torch_npu", python.packages.get("torch_npu", "")),
        ("ROCm", rocm_of_job(python, rocm)[0] if amd else ""),
        ("NVIDIA driver", gpus.gpus[0].driver if gpus and gpus.gpus else ""),
        *sorted(firmware),
    ]
