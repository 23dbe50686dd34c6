from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, bytes_text, check
from doctor.facts.gpu import GpuCards
from doctor.facts.job_paths import JobProgram
from doctor.facts.memory import SharedMemory, ShmUse
from doctor.facts.npu import NpuInventory
from doctor.job import LaunchConfig


@check(severity=ERROR, area="memory")
def shm_docker_default(
    shm: SharedMemory,
    npus: NpuInventory | None,
    gpus: GpuCards | None,
    program: JobProgram | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """/dev/shm is larger than the 64 MiB that a container gets by default.

    ## Why it matters
    Two loader workers with a batch of images each fill 64 MiB, and so do the segments of NCCL for a few ranks of one
    host (9.2 MiB each). The job ends with "Bus error", "No space left on device" or "failed to extend /dev/shm".

    ## What to do
    Recreate the container of {host} with `--shm-size=32g`, or with `--ipc=host`. For all containers:
    `"default-shm-size": "8G"` in /etc/docker/daemon.json. In Kubernetes mount an emptyDir with `medium: Memory` on
    /dev/shm. For the running container, in it if it may mount: `mount -o remount,size=50% /dev/shm`; else as root on
    the machine that runs it: `nsenter -t <pid> -m mount -o remount,size=32g /dev/shm`, with one of the pids that
    `docker top <container>` prints.

    ## In a container
    Start the container of {host} again with `docker run --shm-size=32g`, or with `--ipc=host`. In Kubernetes, Volcano
    and MindCluster mount an emptyDir with `medium: Memory` on /dev/shm. For all containers of Docker:
    `"default-shm-size": "8G"` in /etc/docker/daemon.json. For the running container, as root on its host: `nsenter -t
    <pid> -m mount -o remount,size=32g /dev/shm`, with one of the pids that `docker top <container>` prints.

    ## Source
    Docker documentation, `docker run --shm-size` (default 64 MB); containerd and the kubelet have the same, podman has
    64000 KiB (measured with podman 4.3).
    NCCL and PyTorch issues on containers with 64 MB name these errors. It is a warning where neither the loader workers
    of the launch line's program nor the segments of its ranks are known to need more.
    """
    if not shm.there:
        raise Skip("there is no /dev/shm")
    if shm.is_container_default:
        yield Finding(
            "/dev/shm holds {observed}, the default of a container; expected {expected}",
            observed=bytes_text(shm.size),
            expected="more than 64 MiB",
        ).as_warning(not ShmUse.of(npus, gpus, program, launch).fails_with(shm.size))
