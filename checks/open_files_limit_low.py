from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.gpu import GpuCards
from doctor.facts.kernel import expected_connections
from doctor.facts.limits import ADVISED_FILES, ResourceLimits, needed_files
from doctor.facts.npu import NpuInventory
from doctor.facts.slurm import JobServices
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig


@check(severity=ERROR, area="kernel")
def open_files_limit_low(
    limits: ResourceLimits,
    fleet: PerHost[Reachability],
    npus: PerHost[NpuInventory] | None,
    gpus: PerHost[GpuCards] | None,
    services: JobServices | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    r"""A process of the job may open as many files as it needs.

    ## Why it matters
    Sockets to all peers, the tensors that loader workers share, data files and logs all count. At the limit a rank ends
    with "Too many open files", or a loader with "received 0 items of ancdata", often hours into the run.

    ## What to do
    - Soft: In the script that starts the job: `ulimit -n 65535`. A job that a service starts, such as slurmd, has the
      limit of that service: `LimitNOFILE=65535`.
    - Hard: On {host}, as root: `printf '%s\n' '* hard nofile 65535' 'root hard nofile 65535' >>
      /etc/security/limits.d/99-zz-cluster.conf`, then log in again. In the script that starts the job: `ulimit -n
      65535`. A job that a service starts, such as slurmd, has the limit of that service: `LimitNOFILE=65535`.
    - Service: On {host}, as root, of {service}: {raising}. In the script that starts the job: `ulimit -n 65535`.

    ## In a container
    Start the container of {host} again with `docker run --ulimit nofile=65535:65535`. In Kubernetes, Volcano and
    MindCluster a container has the limit of its runtime: `LimitNOFILE=65535` for the service of containerd or Docker on
    the node. Up to the hard limit, here {hard}, `ulimit -n` in the script of the job does.

    ## Source
    Huawei, HCCL Test guide, "Execution": set the limit of open files to 65535 before the run. That is enough for the
    largest jobs; smaller ones do with less, so a limit counts as low below 16 files for each rank of the job, and
    below 16384: a few thousand go to loader workers alone. The usual 1024 is too low for any, and a warning: a job may
    live with it for long. It is an error where the process of rank 0 cannot have one connection for each rank and 23
    files more. Measured with PyTorch 2.13 and Gloo: rank 0 has 32 files open with 4 ranks, 48 with 12; below, it hangs;
    torchrun with 2 ranks fails with 24.
    """
    ranks, _ = expected_connections(launch, fleet, npus, gpus)
    limit, (least, required) = limits.of_job(launch, services).nofile, needed_files(ranks)
    if not limit.allows(required):
        of_service = limits.service_values("NOFILE", str(ADVISED_FILES), launch, services)
        yield Finding(
            "a process that {service} starts may open {observed} files; expected at least {expected}, better {advised}"
            if of_service
            else "a process may open {observed} files; expected at least {expected}, better {advised}",
            observed=limit.soft,
            expected=required,
            advised=ADVISED_FILES,
            hard="unlimited" if limit.hard is None else limit.hard,
            case="Service" if of_service else "Soft" if limit.can_be_raised_to(ADVISED_FILES) else "Hard",
            **of_service,
        ).as_warning(limit.allows(least))
