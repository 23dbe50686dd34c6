from collections.abc import Iterator

from doctor import ERROR, Finding, bytes_text, check
from doctor.facts.gpu import GpuCards
from doctor.facts.job_paths import JobProgram
from doctor.facts.memory import CONTAINER_DEFAULT_SHM, SharedMemory, ShmUse
from doctor.facts.npu import NpuInventory
from doctor.job import LaunchConfig


@check(severity=ERROR, area="memory")
def shm_too_small(
    shm: SharedMemory,
    npus: NpuInventory | None,
    gpus: GpuCards | None,
    program: JobProgram | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """/dev/shm has room for the shared memory of all ranks on the host.

    ## Why it matters
    Loader workers pass their batches through /dev/shm, and communication libraries use it between the ranks of a host.
    When it is full: "No space left on device", or a plain bus error in a worker.

    ## What to do
    - Too small: On {host}: `mount -o remount,size=50% /dev/shm`.
    - Missing: On {host}: `mkdir -m 1777 /dev/shm && mount -t tmpfs -o mode=1777,size=50% tmpfs /dev/shm`.

    ## In a container
    Start the container of {host} again with `docker run --shm-size=32g`, or with `--ipc=host`. In Kubernetes, Volcano
    and MindCluster mount an emptyDir with `medium: Memory` on /dev/shm.

    ## Source
    No vendor names a minimum. Required are 1 GiB, the smallest value in Huawei's published container examples
    (vllm-ascend: `--shm-size=1g`), and 128 MiB a rank where that is more: two loader workers with two batches of 32 MiB
    each. Above 64 MiB it is a warning. Below, and without the folder, it is an error where the program of the launch
    line has loader workers: 4 of them with batches of 32 MiB end at 64 MiB, and each ends without the folder ("No such
    file or directory"; shm_open(3) and sem_overview(7) name it). It is one, too, where 9.2 MiB for each rank do not fit
    and NCCL may put that there: for the network, and between GPUs that do not reach each other's memory. Else it is a
    warning: a job of Gloo without loader workers runs with 4 KiB, and without the folder (measured with PyTorch 2.13),
    and GPUs behind one NVSwitch reach each other's memory unless NCCL_P2P_DISABLE=1 forbids it (NCCL,
    src/transport/p2p.cc). What HCCL keeps there is not known.
    shm-docker-default reports the default of a container.
    """
    use = ShmUse.of(npus, gpus, program, launch)
    is_optional = not use.fails_with(shm.size)
    if not shm.there:
        yield Finding("there is no /dev/shm", case="Missing").as_warning(is_optional)
    if shm.size < use.required and shm.limited and not shm.is_container_default:
        yield Finding(
            "/dev/shm holds {observed}; expected at least {expected}",
            observed=bytes_text(shm.size),
            expected=bytes_text(use.required),
            ranks=use.ranks,
            case="Too small",
        ).as_warning(is_optional or shm.size > max(CONTAINER_DEFAULT_SHM))
