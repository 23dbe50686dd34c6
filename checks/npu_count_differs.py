from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.npu import NpuInventory

CAUSES = {
    "npu-missing": ("expected=devices",),
    "npu-driver-not-loaded": (),
}


@check(severity=ERROR, area="devices", follows_from=CAUSES)
def npu_count_differs(inventory: PerHost[NpuInventory]) -> Iterator[Finding]:
    """All hosts have the same number of NPUs.

    ## Why it matters
    A job starts the same number of processes on each host. Where an NPU is missing, the last process gets `Invalid
    device ID` (107001), and all the other ranks wait for it.

    ## What to do
    On {host}: `lspci -n -d 19e5: | wc -l` counts the NPUs on the PCI bus, `ls /dev/davinci[0-9]*` lists those that
    the driver has.
    - Not on the bus: stop the jobs, then `ipmitool chassis power cycle`; if it stays away, check card, slot and
      BIOS.
    - On the bus: `dmesg | grep -iE 'davinci|ascend'` has the reason. Stop the jobs, then `reboot`.

    ## In a container
    The container of {host} has {observed} NPUs. If its machine has more, start it again with the device file of each
    that it is to use, `--device /dev/davinci0`, `--device /dev/davinci1` and on, beside /dev/davinci_manager,
    /dev/devmm_svm and /dev/hisi_hdc: see `doctor explain container-devices-missing`.

    ## Source
    The hosts are compared with each other by the files /dev/davinci0 and on; the majority is the norm.
    """
    counts = {host: len(host_inventory.devices) for host, host_inventory in inventory.items()}
    for finding in differing(counts, "{observed} NPUs; {count} of {total} hosts have {expected}"):
        on_bus = {host: inventory[host].pci_count for host in finding.hosts}
        missing = {"On the bus" if count > counts[host] else "Not on the bus" for host, count in on_bus.items()}
        yield finding.with_values(on_pci_bus=on_bus, case=sorted(missing))
