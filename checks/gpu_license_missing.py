import re
from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check, filled
from doctor.facts.gpu import GpuInventory

VIRTUAL = re.compile(r"-[0-9]{1,3}[ABCQ][0-9]?$")
"""Ends the name of a virtual GPU: GRID T4-4C, NVIDIA L40S-2Q."""


@check(severity=WARNING, area="devices")
def gpu_license_missing(inventory: GpuInventory) -> Iterator[Finding]:
    """Every virtual GPU has its licence.

    ## Why it matters
    A virtual GPU (vGPU) without a licence runs at full speed for some minutes. Then the driver lowers its clock and
    allocates memory slowly, so that the job seems to hang.

    ## What to do
    On {host}: put the client configuration token, which the administrator of the licence server (DLS or CLS) gives,
    into the folder: `cp client_configuration_token_*.tok /etc/nvidia/ClientConfigToken/`, `systemctl restart
    nvidia-gridd`, `grep gridd /var/log/syslog`; the licence server must be reachable. `nvidia-smi -q | grep -A 2
    Licensed` shows it.

    ## Source
    NVIDIA, Virtual GPU Client Licensing User Guide; NVIDIA/gpu-operator issues 220 and 628. Only GPUs that are virtual
    by their name are looked at.
    """
    virtual = [gpu for gpu in inventory.gpus if VIRTUAL.search(gpu.name)]
    if not virtual:
        raise Skip("no virtual GPU")
    without = [gpu for gpu in virtual if gpu.license.startswith("Unlicensed")]
    if without:
        yield Finding(
            "{gpus}: {observed}; expected {expected}",
            gpus=[filled("GPU {0} ({1})", gpu.index, gpu.name) for gpu in without],
            observed=without[0].license,
            expected="Licensed",
        )
