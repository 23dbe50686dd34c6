from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.gpu import GpuInventory

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="devices", single_host=ONE_HOST)
def gpu_driver_differs(inventory: PerHost[GpuInventory]) -> Iterator[Finding]:
    """All hosts have the same version of the NVIDIA driver.

    ## Why it matters
    An older driver refuses a newer CUDA on that host alone, and differences in speed and in faults are hard to trace.

    ## What to do
    On {host}, while no program uses the GPUs: `sh ./NVIDIA-Linux-$(uname -m)-{expected}.run`, or with the
    distribution's package, where the other hosts have it from there; then `reboot`.

    ## Source
    The hosts are compared with each other by `driver_version` of `nvidia-smi --query-gpu`; the majority is the norm.
    """
    versions = {host: host_gpus.gpus[0].driver for host, host_gpus in inventory.items() if host_gpus.gpus}
    yield from differing(versions, "NVIDIA driver {observed}; {count} of {total} hosts have {expected}")
