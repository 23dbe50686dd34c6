from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.facts.npu import NpuInventory
from doctor.facts.ports import format_ports, required_hccl_ports
from doctor.job import LaunchConfig


@check(severity=ERROR, area="ranks")
def master_port_among_hccl_ports(npus: PerHost[NpuInventory] | None, launch: LaunchConfig) -> Iterator[Finding]:
    """MASTER_PORT is not one of the host ports that HCCL uses.

    ## Why it matters
    The store listens on MASTER_PORT before HCCL starts. HCCL then finds its own port taken (EI0019, "have already been
    bound") on the host of rank 0, at every start.

    ## What to do
    Choose another port, on all hosts: {setting}.

    ## Source
    HCCL documentation, HCCL_IF_BASE_PORT (32 ports from the base) and EI0019. Where no host was seen, the variables of
    HCCL's ports mark a job on NPUs, and it is a warning: GPU hosts may have them from a common file.
    """
    if not npus and not PORT_VARIABLES & launch.env.keys():
        raise Skip("no host has NPUs, and no variable of HCCL's ports is set")
    if not launch.master_addr:
        raise Skip("MASTER_ADDR is not given, so no MASTER_PORT is known")
    if launch.master_port in required_hccl_ports(launch):
        yield Finding(
            "MASTER_PORT {port} is one of HCCL's ports, {hccl}",
            port=launch.master_port,
            hccl=format_ports(launch.hccl_ports),
            setting=launch.port_option(next(port for port in FREE if port not in required_hccl_ports(launch))),
            observed=launch.master_port,
            expected=filled("a port outside {0}", format_ports(launch.hccl_ports)),
        ).as_warning(not npus)


FREE = (29500, 29600, 60100)
"""Ports to choose from."""
PORT_VARIABLES = {"HCCL_IF_BASE_PORT", "HCCL_HOST_SOCKET_PORT_RANGE"}
