from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.facts.python_env import TorchImport, import_cause, missing_library

CAUSES: dict[str, tuple[str, ...]] = {"cann-missing": ()}


@check(severity=ERROR, area="versions", follows_from=CAUSES)
def torch_npu_cannot_load(torch: TorchImport) -> Iterator[Finding]:
    """torch loads together with torch_npu.

    ## Why it matters
    From torch 2.5 on a plain `import torch` loads torch_npu too, so it fails for every program on the host, also for
    those that use no NPU.

    ## What to do
    {remedy}
    A program that needs no NPU runs with `TORCH_DEVICE_BACKEND_AUTOLOAD=0`.

    ## Source
    The messages of torch_npu at import (its public source): libhccl.so and libascendcl.so are CANN's, libascend_hal.so
    is the driver's. The import is tried as after a plain login, and again with CANN's set_env.sh sourced.
    """
    kind = import_cause(torch.error_with_set_env)
    if kind == "driver":
        remedy = (
            "`ls /usr/local/Ascend/driver/lib64/driver/libascend_hal.so` shows whether the driver has it. If so, in "
            "the job's script: `export LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64/driver:/usr/local/Ascend/driver/"
            "lib64/common:$LD_LIBRARY_PATH`. If not, install the NPU driver again; in a container, mount "
            "/usr/local/Ascend/driver."
        )
        template = "import torch fails: {library} of the NPU driver is not found"
    elif kind == "cann" and torch.set_env:
        remedy = filled(
            "CANN is installed and does not load: `source {0}`, then read the error; reinstall CANN.", torch.set_env
        )
        template = "import torch cannot find CANN ({library}), even after sourcing {set_env}"
    elif kind == "cann":
        remedy = "Install CANN on this host; then `source /usr/local/Ascend/ascend-toolkit/set_env.sh`."
        template = "import torch cannot find CANN ({library}), and there is no set_env.sh to source"
    else:
        return
    yield Finding(
        template,
        library=missing_library(torch.error_with_set_env) or "its environment",
        set_env=torch.set_env,
        remedy=remedy,
        observed=torch.error_with_set_env,
        expected="import torch succeeds",
    )
