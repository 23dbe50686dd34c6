from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.control_group import ControlGroup, unlimited_command
from doctor.facts.limits import ResourceLimits
from doctor.job import LaunchConfig

MIN_PROCESSES = 4096
APART = ("group",)


@check(severity=WARNING, area="kernel", apart=APART)
def process_limit_low(limits: ResourceLimits, group: ControlGroup | None, launch: LaunchConfig) -> Iterator[Finding]:
    r"""A user of the host may start at least 4096 processes and threads.

    ## Why it matters
    Every thread counts: one rank with its communication threads, its math library and a few loader workers starts some
    hundreds. At the limit no thread can be created: "Resource temporarily unavailable", "can't start new thread",
    `pthread_create failed`.

    ## What to do
    - User: on {host}: `printf '%s - nproc unlimited\n' '*' root >> /etc/security/limits.d/99-zz-cluster.conf`, then log
      in again.
    - Control group: on {host}: `{unlimited}`. A group of a container has the limit of `docker run --pids-limit <number>
      <as before>`.

    ## In a container
    Start the container of {host} again with `docker run --ulimit nproc=-1 --pids-limit -1`. In Kubernetes, Volcano and
    MindCluster: `podPidsLimit` in the configuration of the node's kubelet.

    ## Source
    No vendor names a number. 4096 is the lowest value that a distribution of today sets (Red Hat's 20-nproc.conf);
    8 ranks with 512 threads each reach it. Root is not held to it, but to pids.max of its control group: by default
    2048 in podman (containers.conf, pids_limit), podPidsLimit of the kubelet in Kubernetes, TasksMax in systemd.
    """
    limit = limits.of_job(launch).nproc
    if not limit.allows(MIN_PROCESSES):
        yield Finding(
            "a user may have {observed} processes and threads; expected at least {expected}",
            observed=limit.soft,
            expected=MIN_PROCESSES,
            hard="unlimited" if limit.hard is None else limit.hard,
            case="User",
        )
    if group is not None and group.processes is not None and group.processes < MIN_PROCESSES:
        yield Finding(
            "the job's control group may have {observed} processes and threads, by {setting}; expected at least "
            "{expected}",
            observed=group.processes,
            expected=MIN_PROCESSES,
            setting=group.processes_setting,
            unlimited=unlimited_command(group.processes_setting),
            case="Control group",
        )
