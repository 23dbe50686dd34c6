from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.facts.gpu import GpuInventory
from doctor.facts.python_env import PythonEnv


@check(severity=ERROR, area="versions")
def torch_cuda_too_new(python: PythonEnv, inventory: GpuInventory) -> Iterator[Finding]:
    """The NVIDIA driver supports the CUDA version that torch was built for.

    ## Why it matters
    torch does not find a GPU: `The NVIDIA driver on your system is too old`, and `torch.cuda.is_available()` is False.

    ## What to do
    On {host}: install a newer driver, one that supports CUDA {observed}, or a torch for CUDA {expected}:
    `{python} -m pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{wheel}`.

    ## Source
    NVIDIA, CUDA Compatibility: a driver runs programs of every CUDA version of its own major version, and of older
    ones; a newer major version needs the package cuda-compat. The driver's version is `cuda_version` of `nvidia-smi -q
    -x`; torch's is in its own version, as +cu124, or that of nvidia-cuda-runtime, which is installed with it.
    """
    needed = python.cuda_version
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
            python=python.path,
            wheel="cu" + inventory.cuda.replace(".", ""),
        )
