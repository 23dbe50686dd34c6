from collections.abc import Iterator

from doctor import ERROR, MIB, Finding, PerHost, Skip, bytes_text, check, filled
from doctor.facts.container import CAP_IPC_LOCK, JobContainer
from doctor.facts.control_group import ControlGroup
from doctor.facts.gpu import GpuCards
from doctor.facts.limits import RdmaAdapters, ResourceLimits
from doctor.facts.memory import HostMemory
from doctor.facts.npu import NpuInventory
from doctor.facts.slurm import JobServices
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig

KERNEL_DEFAULT = 8 * MIB
NCCL_NEEDS = 64 * MIB
"""NCCL registers more between two hosts: a buffer of 4 MiB for each channel and direction."""


@check(severity=ERROR, area="kernel")
def locked_memory_limit_low(
    limits: ResourceLimits,
    memory: HostMemory,
    npus: NpuInventory | None,
    gpus: GpuCards | None,
    adapters: RdmaAdapters | None,
    view: JobContainer | None,
    group: ControlGroup | None,
    fleet: PerHost[Reachability],
    services: JobServices | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    r"""A process of the job may lock as much memory as its devices need.

    ## Why it matters
    RDMA adapters and accelerators work only on locked memory. With a small limit a job cannot register enough of it,
    and fails: "ibv_reg_mr failed with error Cannot allocate memory", "ibv_create_qp failed".

    ## What to do
    - Login: on {host}, `printf '%s - memlock unlimited\n' '*' root >> /etc/security/limits.d/99-zz-cluster.conf`, then
      log in again. A job that a service starts has the limit of its unit: `LimitMEMLOCK=infinity`.
    - Service: on {host}, of {service}: {raising}.

    ## In a container
    Start the container of {host} again with `docker run --ulimit memlock=-1`. In Kubernetes, Volcano and MindCluster:
    `securityContext.capabilities.add: [IPC_LOCK]` for the container, or `LimitMEMLOCK=infinity` for the service of
    containerd or Docker on the node.

    ## Source
    NVIDIA, NCCL troubleshooting and container guides (`--ulimit memlock=-1`); ibv_reg_mr(3) and mlock(2): pinned
    memory counts against RLIMIT_MEMLOCK. With a GPU or an RDMA adapter there should be no limit, or one as large as the
    host's memory. HCCL uses the NPU's own adapter, whose driver locks memory by itself, and Huawei names no value:
    with NPUs alone, less than 8 MiB is low, the kernel's default since Linux 5.16. Root with CAP_IPC_LOCK is not held
    to the limit; other users, and root in a container without that right, are. It is an error where NCCL must fail:
    with GPUs, an RDMA adapter, several hosts, and less than 64 MiB for a process without the right; else a warning.
    """
    if adapters or (gpus and gpus.pci):
        bounds = [bound.limit for bound in group.memory] if group else []
        required, required_text = min([memory.total, *bounds]), "no limit"
    elif npus:
        required, required_text = KERNEL_DEFAULT, filled("{0}, better no limit", bytes_text(KERNEL_DEFAULT))
    else:
        raise Skip("no NPU, no NVIDIA GPU and no RDMA adapter")
    limit = limits.of_job(launch, services).memlock
    if not limit.allows(required):
        of_service = limits.service_values("MEMLOCK", "infinity", launch, services)
        held = view is not None and not view.has_capability(CAP_IPC_LOCK)
        by_nccl = bool(adapters and gpus and gpus.pci and len(fleet) > 1 and launch.env.get("NCCL_IB_DISABLE") != "1")
        yield Finding(
            "a process may lock {observed} of memory; expected {expected}",
            observed=bytes_text(limit.soft or 0),
            expected=required_text,
            hard="unlimited" if limit.hard is None else bytes_text(limit.hard),
            case="Service" if of_service else "Login",
            **of_service,
        ).as_warning(not (by_nccl and held and (limit.soft or 0) < NCCL_NEEDS))
