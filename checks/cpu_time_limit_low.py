from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.limits import CPU_TIME, ResourceLimits, low_limit
from doctor.job import LaunchConfig


@check(severity=ERROR, area="kernel")
def cpu_time_limit_low(limits: ResourceLimits, launch: LaunchConfig) -> Iterator[Finding]:
    """A process of the job may use as much CPU time as it needs.

    ## Why it matters
    A rank that has used so much ends with SIGXCPU or SIGKILL, without a message of its own, and the others wait for it.
    A rank with eight busy threads uses an hour of CPU time in eight minutes. Login nodes set such limits, and Slurm
    gives a job the limits of the shell that submits it.

    ## What to do
    - Job: in the script that starts the job, `ulimit -t unlimited`.
    - Host: on {host}, `grep -rnE 'ulimit .*-t|^[^#]*[[:space:]]cpu[[:space:]]' /etc/profile /etc/profile.d
      /etc/security ~/.bashrc ~/.profile` shows what sets the limit: delete that line, then log in again. Of a service:
      `LimitCPU=infinity`. Of Slurm: `PropagateResourceLimitsExcept=CPU` in slurm.conf.

    ## In a container
    Start the container of {host} again with `docker run --ulimit cpu=-1`. In Kubernetes, Volcano and MindCluster a
    container has the limit of its runtime: `LimitCPU=infinity` for the service of containerd or Docker on the node.

    ## Source
    setrlimit(2), RLIMIT_CPU; slurm.conf(5), PropagateResourceLimits. The limit is ours: an error below a minute, which
    no training keeps, a warning for any other. Without a setting Linux has none.
    """
    if low := low_limit(CPU_TIME, limits.of_job(launch).others[CPU_TIME]):
        yield Finding("a process may use {observed} of CPU time; expected no limit", **low[1]).as_warning(low[0])
