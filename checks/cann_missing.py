from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.engine.version_matrix import cann_for_release
from doctor.facts.npu import NpuInventory
from doctor.facts.python_env import PythonEnv
from doctor.facts.versions import CannVersion


@check(severity=ERROR, area="versions")
def cann_missing(inventory: NpuInventory, python: PythonEnv, cann: CannVersion | None) -> Iterator[Finding]:
    """CANN is installed where torch_npu or MindSpore is.

    ## Why it matters
    torch_npu and MindSpore call CANN's libraries (libascendcl.so, libhccl.so), and do not load without them.

    ## What to do
    Install CANN {version} on {host}, with its package from hiascend.com: `./Ascend-cann-toolkit_{version}_linux-$(uname
    -m).run --install`, and the package of its operators for this NPU. Where the job runs in a container, name it with
    --within.

    ## Source
    Installation guide of torch_npu; the install.info and version.cfg files that CANN's installer leaves under
    /usr/local/Ascend and ~/Ascend.
    """
    layers = {name: python.packages[name] for name in ("torch_npu", "mindspore") if name in python.packages}
    if not layers:
        raise Skip("neither torch_npu nor MindSpore is installed; name the job's container with --within")
    if cann is None:
        version = next(filter(None, (cann_for_release(*layer) for layer in layers.items())), "")
        yield Finding(
            "{layers} is installed, but CANN is not",
            layers=[" ".join(layer) for layer in layers.items()],
            version=version or None,
            observed="no CANN",
            expected=f"CANN {version}".rstrip(),
        )
