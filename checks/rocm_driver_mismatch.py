from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.engine.version_matrix import judge_rocm, rocm_driver_row
from doctor.facts.amd_smi import AmdGpus
from doctor.facts.python_env import PythonEnv
from doctor.facts.versions import RocmVersion, rocm_of_job

WHEELS = ("5.6", "5.7", "6.0", "6.1", "6.2", "6.3", "6.4", "7.0", "7.1")
"""Releases of ROCm for which download.pytorch.org has an index of torch."""
OF_JOB = ("python", "rocm")
"""One of them tells the ROCm that the job uses: torch's, else the installed one."""


@check(severity=WARNING, area="versions", advisory=OF_JOB)
def rocm_driver_mismatch(amd: AmdGpus, python: PythonEnv | None, rocm: RocmVersion | None) -> Iterator[Finding]:
    """The AMD GPU driver is one that AMD lists for the job's ROCm.

    ## Why it matters
    ROCm calls the kernel driver for memory, queues and links. With a driver that is too old or too new for ROCm, no GPU
    is found, or the first kernel or collective fails. The error (`hipErrorNoBinaryForGpu`, `HSA_STATUS_ERROR`) does not
    name the versions.

    ## What to do
    On {host}: use a ROCm of {expected} for the job (for torch: `{python} -m pip install torch --index-url
    https://download.pytorch.org/whl/{wheel}`), or install the driver that belongs to ROCm {rocm} (`amdgpu-install
    --usecase=dkms`) and restart.

    ## Source
    AMD's compatibility matrix of driver and ROCm (instinct.docs.amd.com): doctor/engine/rocm_drivers.toml. The job's
    ROCm is that of its torch (`2.7.1+rocm6.3`), which has its own libraries, else /opt/rocm/.info/version. A driver of
    the kernel itself stands in no such table and is not judged; a ROCm that the table does not hold is unknown. Which
    torch AMD has tested with which ROCm is not judged: PyTorch publishes builds that AMD does not list.
    """
    drivers = sorted({gpu.driver for gpu in amd.gpus if gpu.driver})
    if not drivers:
        raise Skip("the tool shows no version of the AMD GPU driver")
    version, origin = rocm_of_job(python, rocm)
    if not version:
        raise Skip("the job's interpreter has no torch of ROCm, and ROCm is not installed")
    row = rocm_driver_row(drivers[0])
    if row is None or len(drivers) > 1:
        raise Skip("a driver of the kernel itself: AMD's table holds AMD's own releases")
    try:
        verdict = judge_rocm(row, version)
    except ValueError:
        raise Unreadable(filled("ROCm {0}: expected a version of two numbers or more", version)) from None
    if verdict == "unlisted":
        raise Unreadable(filled("AMD's table for driver {0} does not hold ROCm {1}", row.driver, version))
    if verdict == "fails":
        yield Finding(
            "driver {driver} ({module}) with ROCm {rocm} of {origin}; AMD lists it with ROCm {expected}",
            driver=row.driver,
            module=row.module,
            rocm=version,
            origin=origin,
            python=python.typed if python else "python3",
            wheel=next((f"rocm{release}" for release in reversed(row.rocm) if release in WHEELS), None),
            expected=list(row.rocm),
        )
