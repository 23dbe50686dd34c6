from collections.abc import Iterator

from doctor import ERROR, Finding, ago_text, check, filled
from doctor.facts.container import HostContainer
from doctor.facts.gpu import GpuInventory, NvidiaSmi
from doctor.facts.kernel_log import KernelLog
from doctor.facts.xid import xid_events

EVIDENCE = ("inventory", "log", "place")
"""Beside what nvidia-smi says of itself, where they can be read."""


@check(severity=ERROR, area="devices", advisory=EVIDENCE)
def gpu_lost(
    tool: NvidiaSmi, inventory: GpuInventory | None, log: KernelLog | None, place: HostContainer | None
) -> Iterator[Finding]:
    """Every detected GPU responds to the driver.

    ## Why it matters
    A GPU that does not answer has fallen off the bus, or its controller has stopped. Every program that opens it fails
    or hangs, nvidia-smi may hang, and the other GPUs of the host are often unusable too.

    ## What to do
    Take {host} out of the job. There: `dmesg | grep -i xid` has the reason; then switch it off and on: `ipmitool
    chassis power cycle`. If it happens again, check the power cables and the slot, and have the GPU replaced.

    ## Source
    Manual of nvidia-smi, return value 15; the messages "Unable to determine the device handle for GPU ..." and "GPU is
    lost. Reboot the system to recover this GPU". NVIDIA, Analyzing Xid Errors with the Xid Catalog: after Xid 79 the
    host is restarted, so one since the host was started counts where nvidia-smi does not list that GPU; a GPU that it
    lists answers again.
    """
    tool.require_report()
    if tool.kind == "lost":
        yield Finding(
            "the driver has lost {gpus}: {observed}; expected an answer from every GPU",
            gpus=[filled("the GPU at {0}" if ":" in bus else "GPU {0}", bus) for bus in tool.lost] or "a GPU",
            observed=tool.text or "GPU is lost",
            devices=[_without_function(bus) for bus in tool.lost],
        )
    if inventory is None or log is None or tool.kind not in ("", "lost") or (place and place.engine):
        return
    known = {_without_function(bus) for bus in (*(gpu.bus for gpu in inventory.gpus), *tool.lost)}
    if "" in known:  # a saved run of an older release, without addresses
        return
    for event in xid_events(log, within=log.uptime):
        if event.is_fallen and _without_function(event.device) not in known:
            yield Finding(
                "the GPU at {devices} fell off the bus {age}, and nvidia-smi does not list it; expected an "
                "answer from every GPU",
                gpus=[filled("the GPU at {0}", event.device)],
                devices=[_without_function(event.device)],
                age=ago_text(event.age),
            )


def _without_function(bus: str) -> str:
    """The address as in messages of the driver: 0000:3b:00 for 0000:3b:00.0."""
    return bus.partition(".")[0]
