from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.engine.addresses import means_own_host
from doctor.facts.interfaces import Interfaces, only_usable, usable_addresses
from doctor.job import LaunchConfig

ADVISORY = ("interfaces",)


@check(severity=ERROR, area="ranks", advisory=ADVISORY)
def master_address_local(launch: LaunchConfig, interfaces: PerHost[Interfaces] | None) -> Iterator[Finding]:
    """A job of several hosts meets at an address that is not each host's own.

    ## Why it matters
    Rank 0 waits at MASTER_ADDR for all others. At localhost or 127.0.0.1 every host waits for ranks of its own, and the
    job ends after minutes: "Timed out waiting for clients", or "Not all nodes are joined".

    ## What to do
    Give the launch line {expected}: {option}. {where} torchrun and msrun take 127.0.0.1 where the line gives none;
    torchrun does not read the variable MASTER_ADDR.

    ## Source
    PyTorch, torch/distributed/run.py (`--master-addr`: default 127.0.0.1) and environment variable initialization
    (MASTER_ADDR: "address of rank 0 node"); MindSpore, msrun (`--master_addr`: default 127.0.0.1). The launch line says
    for how many hosts it is; a line with `--node-rank 0` is that of rank 0's host, which may name itself so, and is not
    judged. It can be wrong where hosts are started by the same line and each has its own /etc/hosts with another
    address of localhost.
    """
    if launch.nodes is None or launch.nodes < 2:
        raise Skip("the launch line is for one host, or does not say for how many")
    if not launch.master_addr:
        raise Skip(launch.unresolved_master() or "MASTER_ADDR is not given")
    if launch.node_rank == 0 and (launch.outer_tasks or 1) < 2:
        raise Skip("the launch line is that of rank 0's host")
    if launch.starts_here:
        raise Skip("all ranks of the launch are on one host")
    if means_own_host(launch.master_addr):
        first = next(iter(interfaces or {}), "")
        only = only_usable(interfaces[first]) if interfaces else None
        yield Finding(
            "{nodes} hosts meet at {master}, which every host takes for itself",
            nodes=launch.nodes,
            master=launch.master_addr,
            option=launch.master_option(only.address if only else ""),
            where="`hostname -I` on that host prints its addresses."
            if not interfaces and "srun" not in launch.launchers
            else "",
            observed=launch.master_addr,
            expected=filled(
                "an address of the host with rank 0, such as {0} of {1}", usable_addresses(interfaces[first]), first
            )
            if interfaces
            else "an address of the host with rank 0",
        )
