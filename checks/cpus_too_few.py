from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.control_group import ControlGroup
from doctor.facts.gpu import GpuCards
from doctor.facts.memory import accelerator_count, host_rank_count
from doctor.facts.npu import NpuInventory
from doctor.job import LaunchConfig


@check(severity=WARNING, area="kernel")
def cpus_too_few(
    group: ControlGroup, npus: NpuInventory | None, gpus: GpuCards | None, launch: LaunchConfig
) -> Iterator[Finding]:
    """Where the job may not use all CPUs of the host, each of its ranks there has at least one.

    ## Why it matters
    Every rank keeps a CPU busy with launching kernels, and its loader workers need more. Where the ranks share fewer,
    they take turns: all are slow, the devices wait, and a rank that waits too long runs into the timeout of a
    collective.

    ## What to do
    Give the job of {host} more CPUs. Slurm: `--cpus-per-task` of sbatch, and again of srun, which does not inherit it
    since 22.05. A container: `docker run --cpus 64`, without `--cpuset-cpus`; resources.limits.cpu in Kubernetes. A
    service: CPUQuota= and AllowedCPUs=. `taskset -cp $$` shows on which CPUs a process may run.

    ## Source
    Linux, Documentation/admin-guide/cgroup-v2.rst: cpu.max is the time that a group may use in a period, cpuset.cpus
    the CPUs; Slurm, sbatch and srun manuals: one CPU a task by default. One CPU a rank is the least that can work; how
    many are enough depends on the job, so more than that is not judged, nor is a host that is small as a whole.
    """
    ranks = host_rank_count(launch, accelerator_count(npus, gpus))
    if not ranks:
        raise Skip("the number of ranks on a host is not known")
    if group.usable_cpus < min(ranks, group.online_cpus):
        by_time = group.quota is not None and group.quota < group.allowed_cpus
        yield Finding(
            "{ranks} ranks may use {observed} of {total} CPUs, by {setting}; expected at least one a rank",
            ranks=ranks,
            observed=f"{group.usable_cpus:.3g}",
            total=group.online_cpus,
            setting=group.quota_setting if by_time else "the CPU affinity of their processes",
        )
