from collections.abc import Iterator, Mapping

from doctor import WARNING, Finding, Skip, check, filled
from doctor.engine.version_matrix import known_bad
from doctor.facts.amd_smi import AmdGpus
from doctor.facts.gpu import GpuInventory
from doctor.facts.python_env import PythonEnv
from doctor.facts.versions import RocmVersion, rocm_of_job

OF_SOME = ("gpus", "amd", "rocm")
"""What tells the versions of one vendor's software, where a host has it."""


@check(severity=WARNING, area="versions", advisory=OF_SOME)
def known_bad_version(
    python: PythonEnv, gpus: GpuInventory | None, amd: AmdGpus | None, rocm: RocmVersion | None
) -> Iterator[Finding]:
    """The NCCL, torch_npu, ROCm and NVIDIA driver that the job uses have no published fault.

    ## Why it matters
    Its maker has published the fault, and nothing in the job's log names it: a job that hangs or gives wrong sums looks
    like one with a bad link.

    ## What to do
    Install {component} {expected} or newer for the job on {host}. {instead}

    ## Source
    Release notes of NCCL, RCCL and ROCm, and issues of PyTorch and vllm-ascend, which
    doctor/engine/known_bad_versions.toml names with each version. A fault of some GPUs alone is looked for where
    nvidia-smi or amd-smi lists such GPUs. A version that is not in the table may have faults, too.
    """
    names = [gpu.name for gpu in gpus.gpus] if gpus else []
    names += [gpu.name for gpu in amd.gpus] if amd else []
    versions = {name: version for name, version in _versions(python, gpus, amd, rocm).items() if version}
    if not versions:
        raise Skip("the job uses no NCCL, torch_npu, ROCm or NVIDIA driver")
    for component, version in versions.items():
        for row in known_bad(component, version, names):
            yield Finding(
                "{component} {observed}: {fault}; fixed in {expected}",
                component=component,
                observed=version,
                expected=row.fixed,
                fault=row.fault,
                instead=row.instead and filled("Until then: `{0}`.", row.instead),
                source=row.source,
            )


def _versions(
    python: PythonEnv, gpus: GpuInventory | None, amd: AmdGpus | None, rocm: RocmVersion | None
) -> Mapping[str, str]:
    """By component, as known_bad_versions.toml calls it; empty where the host or the job does not have it."""
    return {
        "NCCL": python.nccl[1] if python.nccl else "",
        "torch_npu": python.packages.get("torch_npu", ""),
        "ROCm": rocm_of_job(python, rocm)[0] if amd else "",
        "NVIDIA driver": gpus.gpus[0].driver if gpus and gpus.gpus else "",
    }
