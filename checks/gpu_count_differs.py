from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.gpu import GpuCards, GpuInventory

CAUSES = {
    "gpu-missing": ("expected",),
}
ADVISORY = ("cards",)
ONE_HOST = "only one host: nothing to compare"


@check(severity=ERROR, area="devices", single_host=ONE_HOST, follows_from=CAUSES, advisory=ADVISORY)
def gpu_count_differs(inventory: PerHost[GpuInventory], cards: PerHost[GpuCards] | None) -> Iterator[Finding]:
    """All hosts have the same number of GPUs.

    ## Why it matters
    A job starts the same number of processes on each host. Where a GPU is missing, the last process fails with `invalid
    device ordinal`, and all the other ranks wait for it.

    ## What to do
    On {host}: `lspci -n -d 10de:` lists the GPUs on the PCI bus, `nvidia-smi -L` those that the driver has.
    - Not on the bus: `dmesg | grep -i xid` shows Xid 79 where the GPU fell off. Stop the jobs, then `ipmitool
      chassis power cycle`; if it stays away, check its slot and power, and have the card replaced.
    - On the bus: `dmesg | grep -iE 'xid|nvrm'` has the reason. Stop the jobs, then `reboot`.

    ## In a container
    The container of {host} has {observed} GPUs. If its machine has more, start it again with all that it is to use:
    `docker run --gpus all`, or in a pod a limit `nvidia.com/gpu` of as many; NVIDIA_VISIBLE_DEVICES may leave some out.

    ## Source
    The hosts are compared with each other by what `nvidia-smi --query-gpu` lists; the majority is the norm.
    """
    counts = {host: len(host_gpus.gpus) + len(host_gpus.unread) for host, host_gpus in inventory.items()}
    for finding in differing(counts, "{observed} GPUs; {count} of {total} hosts have {expected}"):
        on_bus = {host: cards[host].pci for host in finding.hosts if cards and host in cards}
        missing = {"On the bus" if count > counts[host] else "Not on the bus" for host, count in on_bus.items()}
        yield finding.with_values(case=sorted(missing) if len(on_bus) == len(finding.hosts) else [])
