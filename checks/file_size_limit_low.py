from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.limits import FILE_SIZE, ResourceLimits, low_limit
from doctor.job import LaunchConfig


@check(severity=ERROR, area="kernel")
def file_size_limit_low(limits: ResourceLimits, launch: LaunchConfig) -> Iterator[Finding]:
    """A process of the job may write files as large as it needs.

    ## Why it matters
    A checkpoint is one file, and so is the shared memory of a loader or of Gloo. Beyond the limit a process ends with
    "File too large" or SIGXFSZ.

    ## What to do
    - Job: in the script that starts the job, `ulimit -f unlimited`.
    - Host: on {host}, `grep -rnE 'ulimit .*-f|^[^#]*[[:space:]]fsize[[:space:]]' /etc/profile /etc/profile.d
      /etc/security ~/.bashrc ~/.profile` shows what sets the limit: delete that line, then log in again. Of a service:
      `LimitFSIZE=infinity`.

    ## In a container
    Start the container of {host} again with `docker run --ulimit fsize=-1`. In Kubernetes, Volcano and MindCluster a
    container has the limit of its runtime: `LimitFSIZE=infinity` for the service of containerd or Docker on the node.

    ## Source
    setrlimit(2), RLIMIT_FSIZE. The limits are ours: an error below 64 MiB, a warning below 4 GiB. Without a setting
    Linux has none.
    """
    if low := low_limit(FILE_SIZE, limits.of_job(launch).others[FILE_SIZE]):
        yield Finding("a process may write files of {observed}; expected no limit", **low[1]).as_warning(low[0])
