from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.container import HostContainer
from doctor.facts.npu import NpuInventory, NpuStart

STARTS = "npu-smi starts"


@check(severity=ERROR, area="devices")
def npu_driver_not_loaded(start: NpuStart, inventory: NpuInventory, place: HostContainer | None) -> Iterator[Finding]:
    """The NPU driver is loaded and answers npu-smi.

    ## Why it matters
    Without it no process gets an NPU. npu-smi gives the same message (-8005) for three faults. The module is not
    loaded; the host was not restarted after driver or firmware were installed; or the user may not open the device
    files.

    ## What to do
    {remedy}

    ## Source
    Public source of npu-smi and DCMI (-8005 is an inner error, -8020 a resource in use); the mind-cluster FAQ for the
    missing restart. The module's own file /dev/davinci_manager shows whether it is loaded; a version file that is
    newer than the kernel's start shows the missing restart.
    """
    failure = start.failure
    if failure is None:
        return
    if failure.kind == "library":
        yield Finding(
            "npu-smi cannot load its libraries: {observed}",
            remedy="Check `ldconfig -p | grep libdcmi` and /usr/local/dcmi; for a container, mount both folders with "
            "`-v /usr/local/dcmi:/usr/local/dcmi -v /usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64`.",
            observed=failure.message,
            expected=STARTS,
        )
    elif failure.kind == "busy":
        yield Finding(
            "npu-smi reports that the NPUs are in use by another process: {observed}",
            remedy="End what `fuser -v /dev/davinci*` names, on the host and in its containers; if it names nothing, "
            "restart the host: `reboot`.",
            observed=failure.message,
            expected=STARTS,
        )
    elif inventory.denied_files:
        raise Unreadable(
            filled("this user may not open {0}, so npu-smi fails", inventory.denied_files[0]), "npu-user-not-in-group"
        )
    elif place and place.engine and not inventory.manager:
        raise Unreadable(
            "the container was not given /dev/davinci_manager, so npu-smi fails", "container-devices-missing"
        )
    elif not inventory.manager:
        yield Finding(
            "the NPU driver is not loaded: there is no /dev/davinci_manager",
            remedy="Read `lsmod | grep -i drv_` and `dmesg | grep -i davinci`. If the kernel has changed since the "
            "driver was installed (`uname -r`), reinstall the driver; then `reboot`. For a container, on its host.",
            observed=failure.message,
            expected=STARTS,
        )
    elif inventory.newer_than_boot and not (place and place.engine):  # an image has files of its own
        yield Finding(
            "{files} changed after the last start of the host, and the driver does not answer: restart the host",
            files=list(inventory.newer_than_boot),
            remedy="Restart the host: `reboot`.",
            observed=failure.message,
            expected=STARTS,
        )
    else:
        yield Finding(
            "the NPU driver is loaded but does not answer",
            remedy="Read the reason: `dmesg | grep -iE 'davinci|ascend'`; then restart the host: `reboot`. If it comes "
            "back, reinstall driver and firmware.",
            observed=failure.message,
            expected=STARTS,
        )
