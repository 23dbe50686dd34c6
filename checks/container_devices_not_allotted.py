import re
import sys
from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check, filled
from doctor.facts.container import FIRST_VIRTUAL_NPU, JobContainer

WHOLE_GPU = re.compile(r"[0-9]{1,3}|GPU-[0-9a-fA-F-]{8,40}", re.ASCII)


@check(severity=WARNING, area="devices")
def container_devices_not_allotted(container: JobContainer) -> Iterator[Finding]:
    """The job's container has no accelerators beside those that it was allotted.

    ## Why it matters
    A device plugin names the container's devices in a variable. A privileged container sees the devices of all others
    as well; so does one whose template or image sets that variable to other devices. Ranks count from 0 and so take
    devices of other jobs: out of memory, half the speed, or results of a device that is under test. The scheduler sees
    none of it.

    ## What to do
    Start the pod of {host} without `privileged: true`; `securityContext.capabilities.add: [IPC_LOCK]` is enough for
    RDMA. Take {variable} out of its template and its image. {until}

    ## Source
    Kubernetes, issue 81256, and NVIDIA k8s-device-plugin, issue 336 (a privileged pod that requested one GPU sees all,
    NVIDIA_VISIBLE_DEVICES names its own); NVIDIA Container Toolkit, NVIDIA_VISIBLE_DEVICES; Huawei, Ascend Docker
    Runtime (mounts the devices of ASCEND_VISIBLE_DEVICES; by ascend-device-plugin the host's virtual NPU 100 is
    /dev/davinci100 in the container). Lists of whole devices alone are judged: `all`, MIG devices and virtual NPUs are
    not. A list that somebody set by hand for a container that was to have all is accused wrongly.
    Over `--transport kubernetes` the pod itself says what it was allotted: the annotation `huawei.com/AscendReal` of
    ascend-device-plugin, and the limit `nvidia.com/gpu` (devices that it shares among pods are fewer, never more).
    """
    if not container.engine:
        raise Skip("the job does not run in a container")
    named = container.allotted_npus or container.expected_npus
    variable = "huawei.com/AscendReal" if container.allotted_npus else "ASCEND_VISIBLE_DEVICES"
    gpus = [name.strip() for name in container.visible_gpus.split(",")]
    judged = False
    end = FIRST_VIRTUAL_NPU if not container.allotted_npus else sys.maxsize
    if named and container.npus and max(named) < end:
        judged = True
        extra = [number for number in container.npus if number not in named and number < end]
        if extra:
            yield Finding(
                "the container has NPU {devices} beside those that {source} names: {named}",
                devices=extra,
                named=list(named),
                source=variable,
                variable="ASCEND_VISIBLE_DEVICES",
                until=_until("ASCEND_RT_VISIBLE_DEVICES=" + ",".join(map(str, named))),
                observed=len(container.npus),
                expected=len(named),
            )
    if container.gpus and all(WHOLE_GPU.fullmatch(name) for name in gpus):
        judged = True
        if len(container.gpus) > len(set(gpus)):
            yield Finding(
                "the container has {observed} GPUs, and NVIDIA_VISIBLE_DEVICES names {expected}",
                variable="NVIDIA_VISIBLE_DEVICES",
                until=_until("CUDA_VISIBLE_DEVICES=" + ",".join(gpus)),
                observed=len(container.gpus),
                expected=len(set(gpus)),
            )
    elif container.gpus and container.requested_gpus:
        judged = True
        if len(container.gpus) > container.requested_gpus:
            yield Finding(
                "the container has {observed} GPUs, and requests {expected} of Kubernetes",
                variable="NVIDIA_VISIBLE_DEVICES",
                until="",
                observed=len(container.gpus),
                expected=container.requested_gpus,
            )
    if not judged:
        raise Skip("no variable names whole accelerators of the container")


def _until(setting: str) -> str:
    return filled("Until then, before the job starts: `export {0}`.", setting)
