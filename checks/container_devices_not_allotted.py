import re
from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.container import FIRST_VIRTUAL_NPU, JobContainer

WHOLE_GPU = re.compile(r"[0-9]{1,3}|GPU-[0-9a-fA-F-]{8,40}", re.ASCII)


@check(severity=WARNING, area="devices")
def container_devices_not_allotted(container: JobContainer) -> Iterator[Finding]:
    """The job's container has no accelerators beside those that it was allotted.

    ## Why it matters
    A device plugin tells the container by a variable which devices are its own, and a privileged container has those of
    all others, too. Ranks count from 0 and so take devices of other jobs: out of memory, half the speed, or results of
    a device that is under test. The scheduler sees none of it.

    ## What to do
    Start the pod of {host} without `privileged: true`; `securityContext.capabilities.add: [IPC_LOCK]` is enough for
    RDMA. Until then: `export {own}` with the devices that {variable} names.

    ## Source
    Kubernetes, issue 81256, and NVIDIA k8s-device-plugin, issue 336 (a privileged pod that requested one GPU sees all,
    NVIDIA_VISIBLE_DEVICES names its own); NVIDIA Container Toolkit, NVIDIA_VISIBLE_DEVICES; Huawei, Ascend Docker
    Runtime (mounts the devices of ASCEND_VISIBLE_DEVICES). Lists of whole devices alone are judged: `all`, MIG devices
    and virtual NPUs are not. A list that somebody set by hand for a container that was to have all is accused wrongly.
    """
    if not container.engine:
        raise Skip("the job does not run in a container")
    named = container.expected_npus
    gpus = [name.strip() for name in container.visible_gpus.split(",")]
    judged = False
    if named and container.npus and max(named) < FIRST_VIRTUAL_NPU:
        judged = True
        extra = [number for number in container.npus if number not in named and number < FIRST_VIRTUAL_NPU]
        if extra:
            yield Finding(
                "the container has NPU {devices} beside those that ASCEND_VISIBLE_DEVICES names: {named}",
                devices=extra,
                named=list(named),
                variable="ASCEND_VISIBLE_DEVICES",
                own="ASCEND_RT_VISIBLE_DEVICES=" + ",".join(map(str, named)),
                observed=len(container.npus),
                expected=len(named),
            )
    if container.gpus and all(WHOLE_GPU.fullmatch(name) for name in gpus):
        judged = True
        if len(container.gpus) > len(set(gpus)):
            yield Finding(
                "the container has {observed} GPUs, and NVIDIA_VISIBLE_DEVICES names {expected}",
                variable="NVIDIA_VISIBLE_DEVICES",
                own="CUDA_VISIBLE_DEVICES=" + ",".join(gpus),
                observed=len(container.gpus),
                expected=len(set(gpus)),
            )
    if not judged:
        raise Skip("no variable names whole accelerators of the container")
