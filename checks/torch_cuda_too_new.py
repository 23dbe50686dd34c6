from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.engine.version_matrix import known_bad
from doctor.facts.gpu import GpuInventory
from doctor.facts.python_env import PythonEnv


@check(severity=ERROR, area="versions")
def torch_cuda_too_new(python: PythonEnv, inventory: GpuInventory) -> Iterator[Finding]:
    """The NVIDIA driver and the GPUs support the CUDA version that torch was built for.

    ## Why it matters
    torch does not find a GPU: `The NVIDIA driver on your system is too old`, and `torch.cuda.is_available()` is False;
    or it has no code for the GPU: `no kernel image is available for execution on the device`.

    ## What to do
    On {host}, install a torch for CUDA {expected}: `{python} -m pip install --force-reinstall torch --index-url
    https://download.pytorch.org/whl/{wheel}`. {newer}

    ## Source
    NVIDIA, CUDA Compatibility: a driver runs programs of every CUDA version of its own major version, and of older
    ones; a newer major version needs the package cuda-compat. The driver's version is `cuda_version` of `nvidia-smi -q
    -x`; torch's is in its own version, as +cu124, or that of nvidia-cuda-runtime, which is installed with it. The GPUs
    that a CUDA has no code for are in doctor/engine/known_bad_versions.toml.
    """
    needed = python.cuda_version
    for row in known_bad("CUDA", needed, [gpu.name for gpu in inventory.gpus]):
        yield Finding(
            "torch is built for CUDA {observed}, which has {fault}: {gpus}; the last that has it is {expected}",
            observed=needed,
            expected=row.fixed,
            fault=row.fault,
            gpus=sorted({gpu.name for gpu in inventory.gpus if any(word in gpu.name for word in row.gpus)}),
            python=python.typed,
            wheel="cu" + row.fixed.replace(".", ""),
            newer="",
        )
        return
    if not needed or not inventory.cuda:
        raise Skip("torch was not built for CUDA, or the driver's CUDA version is not reported")
    major, supported = needed.partition(".")[0], inventory.cuda.partition(".")[0]
    if not (major.isdecimal() and supported.isdecimal()) or python.has_cuda_compat:
        return
    if int(major) > int(supported):
        yield Finding(
            "torch is built for CUDA {observed}; the driver {driver} supports CUDA {expected}",
            observed=needed,
            expected=inventory.cuda,
            driver=inventory.gpus[0].driver if inventory.gpus else "",
            python=python.typed,
            wheel="cu" + inventory.cuda.replace(".", ""),
            newer=filled("Or install a driver that supports CUDA {0}.", needed),
        )
