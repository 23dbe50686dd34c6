from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.gpu import GpuInventory

CAUSES = {
    "gpu-missing": ("expected",),
}
ONE_HOST = "only one host: nothing to compare"


@check(severity=ERROR, area="devices", single_host=ONE_HOST, follows_from=CAUSES)
def gpu_count_differs(inventory: PerHost[GpuInventory]) -> Iterator[Finding]:
    """All hosts have the same number of GPUs.

    ## Why it matters
    A job starts the same number of processes on each host. Where a GPU is missing, the last process fails with `invalid
    device ordinal`, and all the other ranks wait for it.

    ## What to do
    On {host}: `nvidia-smi -L` lists the GPUs that the driver has, `lspci -n -d 10de:` those on the bus,
    `dmesg | grep -i xid` what the driver reported. One that the bus lacks, or with Xid 79, fell off: stop the jobs and
    switch the host off and on; if it stays away, have the card changed. One that the bus has: restart the host.

    ## In a container
    The container of {host} has {observed} GPUs. If its machine has more, start it again with all that it is to use:
    `docker run --gpus all`, or in a pod a limit `nvidia.com/gpu` of as many; NVIDIA_VISIBLE_DEVICES may leave some out.

    ## Source
    The hosts are compared with each other by what `nvidia-smi --query-gpu` lists; the majority is the norm.
    """
    counts = {host: len(host_gpus.gpus) + len(host_gpus.unread) for host, host_gpus in inventory.items()}
    yield from differing(counts, "{observed} GPUs; {count} of {total} hosts have {expected}")
