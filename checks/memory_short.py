from collections.abc import Iterator

from doctor import ERROR, GIB, MIB, Finding, bytes_text, check
from doctor.facts.control_group import ControlGroup, unlimited_command
from doctor.facts.gpu import GpuCards
from doctor.facts.memory import HostMemory, accelerator_count, host_rank_count
from doctor.facts.npu import NpuInventory
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig

MIN_AVAILABLE_SHARE = 0.1
PER_RANK, PER_DEVICE_RANK = 256 * MIB, GIB
OF_ANY_RANK, OF_ANY_AGENT = 150 * MIB, 100 * MIB
"""With less no rank of PyTorch starts, nor the agent of torchrun beside its ranks."""
APART = ("group",)


@check(severity=ERROR, area="memory", apart=APART)
def memory_short(
    memory: HostMemory,
    reach: Reachability,
    group: ControlGroup | None,
    npus: NpuInventory | None,
    gpus: GpuCards | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """At least a tenth of the memory of the host, and of the job's control group, is available.

    ## Why it matters
    When memory runs out the kernel kills the largest process, most often a rank (exit by signal 9), or HCCL cannot get
    its buffers (EI0007). A host that is short before the job starts is used by another user or by a leftover
    process. A container, a job of Slurm and a service have a control group, whose limit may be far below the host's
    memory. All ranks share it, and so does what they keep in /dev/shm.

    ## What to do
    - Host: on {host} `ps -eo pid,user,rss,etime,args --sort=-rss | head` shows first the processes that hold most.
      End those that no job needs: `kill <pid>`. Where all are needed, start fewer ranks on {host}.
    - Control group: on {host}: `{unlimited}`; all processes of the group share the limit. Slurm sets it anew for each
      job by `sbatch --mem=<memory> <job>.sh`, docker by `docker run --memory <memory> <as before>`, Kubernetes by
      resources.limits.memory.

    ## Source
    proc_meminfo(5), MemAvailable: what programs can get without swapping. The share is ours.
    Linux, Documentation/admin-guide/cgroup-v2.rst: above memory.max the kernel kills, above memory.high it holds
    processes back; the limit of every group above the process's own counts too. What a group uses is taken without its
    cache of files. A rank on a CPU needs 256 MiB (PyTorch 2.13 holds 216 MB of its own after init_process_group,
    measured), one with an NPU or GPU 1 GiB; that is ours, no vendor names a number. In an SSH session the control group
    is that of the session; a scheduler or service may start the job in another one. A job that needs less, or starts
    elsewhere, lives: so it is a warning. It is an error where torchrun is started in this group and less than 150 MiB
    are left for each rank of the host, and 100 MiB for its agent: with 2 ranks and 400 MB the kernel killed the agent,
    and with 600 MB they trained (PyTorch 2.13, measured).
    """
    if memory.available < MIN_AVAILABLE_SHARE * memory.total:
        yield Finding(
            "{observed} of {total} of memory are available; expected at least {expected}",
            observed=bytes_text(memory.available),
            total=bytes_text(memory.total),
            expected=bytes_text(int(MIN_AVAILABLE_SHARE * memory.total)),
            case="Host",
        ).as_warning()
    devices = accelerator_count(npus, gpus)
    ranks = max(1, host_rank_count(launch, devices))
    needed = ranks * (PER_DEVICE_RANK if devices else PER_RANK)
    short = [
        (bound.available - required, required, bound)
        for bound in (group.memory if group else ())
        if bound.limit < memory.total
        if bound.available < (required := max(needed, int(MIN_AVAILABLE_SHARE * bound.limit)))
    ]
    if short:
        _, required, bound = min(short, key=lambda item: item[0])
        is_enough = bound.available >= ranks * OF_ANY_RANK + OF_ANY_AGENT
        yield Finding(
            "{observed} of {total} are available below the limit in {setting}; expected at least {expected} (ranks of "
            "the host: {ranks})",
            observed=bytes_text(bound.available),
            total=bytes_text(bound.limit),
            setting=bound.setting,
            expected=bytes_text(required),
            ranks=ranks,
            unlimited=unlimited_command(bound.setting),
            case="Control group",
        ).as_warning(is_enough or not reach.local or launch.launchers[:1] != ("torchrun",))
