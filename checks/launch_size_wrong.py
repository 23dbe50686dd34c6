from collections.abc import Iterator, Sequence

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.engine.sanitize import count_noun
from doctor.facts.gpu import GpuCards
from doctor.facts.npu import NpuInventory
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig


@check(severity=ERROR, area="ranks")
def launch_size_wrong(
    fleet: PerHost[Reachability],
    npus: PerHost[NpuInventory] | None,
    gpus: PerHost[GpuCards] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """The job's size fits its hosts: they exist, and none has more ranks than devices.

    ## Why it matters
    A job that expects more hosts than it has waits for the missing ones until its timeout, minutes later, and ends. A
    rank whose LOCAL_RANK is no device's number ends with "invalid device ordinal", or shares a device with another
    rank. A WORLD_SIZE that is not what the hosts start is waited for in the same way.

    ## What to do
    {remedy}

    Change {option} in the launch line or the environment ({launch}) to {right}, or add the missing hosts. Of an
    elastic launch (`--nnodes 2:4 --rdzv-backend c10d`) the lower number counts; without the backend it is the higher.

    ## Source
    PyTorch, torchrun: "--nnodes" and "--nproc-per-node"; MindSpore, msrun: "--worker_num" and "--local_worker_num";
    Slurm, srun(1): "--nodes". A rank for each device is the rule of `torch.cuda.set_device(LOCAL_RANK)` and of msrun. A
    job that trains on the CPUs of hosts with accelerators may start more ranks. More hosts than the launch line uses
    are spares, and no finding. A WORLD_SIZE below what the hosts start is a warning: spares are not started, and
    `doctor preflight --need` tells how many are needed. A rank that is started with a number from WORLD_SIZE on waits
    until its timeout, while the others end well (measured with PyTorch 2.13, Gloo). torchrun, msrun, accelerate and
    deepspeed give their ranks their own and ignore what is exported; srun and mpirun pass it on.
    """
    hosts = len(fleet)
    sizes = launch.stated_ranks
    counts = [_devices(host, npus, gpus) for host in fleet]
    if not launch.launch_line and not (sizes and (launch.ranks_per_host or (hosts > 1 and all(counts)))):
        raise Skip("no launch line was given: doctor check HOSTS -- COMMAND")
    if hosts < 2:
        yield from _uneven(sizes, launch.ranks_per_host)
    elif launch.ranks_per_host:
        yield from _stated_sizes(sizes, launch, hosts)
    elif all(counts):
        yield from _more_than_devices(sizes, counts)
    if launch.nodes is not None and launch.nodes > hosts:
        yield Finding(
            "the launch line is for {observed}, and there are only {expected}",
            launch=launch.launch_line,
            option="the number of hosts",
            observed=count_noun(launch.nodes, "host"),
            expected=count_noun(hosts, "host"),
            right=hosts,
            remedy="",
        )
    if isinstance(launch.ranks_per_host, int) and launch.launchers:
        for host in fleet:
            devices = _devices(host, npus, gpus)
            if 0 < devices < launch.ranks_per_host:
                yield Finding(
                    "the launch line starts {observed} on a host with {expected}",
                    hosts=(host,),
                    launch=launch.launch_line,
                    option="the number of ranks on a host",
                    observed=count_noun(launch.ranks_per_host, "rank"),
                    expected=count_noun(devices, "device"),
                    right=devices,
                    remedy="",
                )


def _stated_sizes(sizes: dict[str, int], launch: LaunchConfig, hosts: int) -> Iterator[Finding]:
    """A number of ranks that the hosts do not start. Fewer may leave spares; ``hosts`` may be a number of hosts."""
    each = launch.ranks_per_host or 0
    counts = [each] * hosts if isinstance(each, int) else list(each.values())
    # Of a list of hosts, one task on each may start all ranks of it.
    room = sum(counts) if isinstance(each, int) or min(counts) > 1 else 0
    for name, ranks in sizes.items():
        uneven = isinstance(each, int) and each > 0 and ranks % each
        is_error = ranks > hosts and (ranks > room or uneven)
        if room and (is_error or (ranks < room and ranks != hosts)):
            template = "{option} is {observed}, and the hosts start {expected}"
            rest = (
                "{option} is {observed}, and the hosts start {expected}: the rest wait in vain, unless they are spares"
            )
            yield Finding(
                template if is_error else rest,
                launch=f"{name}={ranks}",
                option=name,
                observed=ranks,
                expected=room,
                right=room,
                remedy=_corrected(name, room),
            ).as_warning(not is_error)


def _uneven(sizes: dict[str, int], each: dict[str, int] | int | None) -> Iterator[Finding]:
    """Of one host, beside which the job may have others: no number of hosts starts so many, if these are ranks."""
    for name, ranks in sizes.items():
        if isinstance(each, int) and 0 < each < ranks and ranks % each:
            yield Finding(
                "{option} is {observed}, and each host starts {expected}",
                launch=f"{name}={ranks}",
                option=name,
                observed=ranks,
                expected=each,
                right=filled("a multiple of {0}, if it is not the number of hosts", each),
                remedy="",
            ).as_warning()


def _more_than_devices(sizes: dict[str, int], devices: Sequence[int]) -> Iterator[Finding]:
    """A number of ranks that has no place on the devices of the hosts, with one rank on each.

    Twice or three times as many as hosts may be trained on CPUs, or share devices: a warning.
    """
    for name, ranks in sizes.items():
        if ranks > sum(devices) and ranks > len(devices):
            yield Finding(
                "{option} is {observed}, and the hosts have {expected}",
                launch=f"{name}={ranks}",
                option=name,
                observed=ranks,
                expected=count_noun(sum(devices), "device"),
                right=sum(devices),
                remedy=_corrected(name, sum(devices)),
            ).as_warning(not ranks % len(devices))


def _corrected(variable: str, ranks: int) -> str:
    return filled("Set it to the number of ranks that the hosts start: `export {0}={1}`.", variable, ranks)


def _devices(host: str, npus: PerHost[NpuInventory] | None, gpus: PerHost[GpuCards] | None) -> int:
    if npus and host in npus:
        return len(npus[host].devices)
    return gpus[host].pci if gpus and host in gpus else 0
