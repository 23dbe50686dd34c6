from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.gpu import NvidiaSmi


@check(severity=ERROR, area="devices")
def gpu_lost(tool: NvidiaSmi) -> Iterator[Finding]:
    """The driver reaches every GPU that it has found.

    ## Why it matters
    A GPU that does not answer has fallen off the bus, or its controller has stopped. Every program that opens it fails
    or hangs, nvidia-smi may hang, and the other GPUs of the host are often unusable too.

    ## What to do
    On {host}: `dmesg | grep -i xid`, drain the host, then restart it with a power cycle. If it happens again, check the
    power cables and the slot, and have the GPU replaced.

    ## Source
    Manual of nvidia-smi, return value 15; the messages "Unable to determine the device handle for GPU ..." and "GPU is
    lost. Reboot the system to recover this GPU".
    """
    if tool.kind == "lost":
        yield Finding(
            "the driver has lost {gpus}: {observed}; expected an answer from every GPU",
            gpus=[f"the GPU at {bus}" for bus in tool.lost] or "a GPU",
            observed=tool.text or "GPU is lost",
        )
