from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.engine.addresses import means_own_host
from doctor.facts.names import HostNames, is_address
from doctor.facts.network import HostAddresses
from doctor.facts.ports import Listeners
from doctor.facts.python_env import PythonEnv
from doctor.job import LaunchConfig
from doctor.job.variable_versions import release_numbers

FREE_PORT = (2, 12)
"""The first release of PyTorch whose torchrun takes a free port for one host, unless it is given one."""


@check(severity=ERROR, area="kernel")
def master_port_taken(
    listeners: Listeners, names: HostNames, addresses: HostAddresses, python: PythonEnv | None, launch: LaunchConfig
) -> Iterator[Finding]:
    """MASTER_PORT is free on the host of MASTER_ADDR.

    ## Why it matters
    Rank 0 listens there, and ends with "Address already in use" if another program does already. If that program is the
    store of another run, the ranks join the wrong job or wait for ever.

    ## What to do
    `ss -tlnp "sport = :{port}"` on {host} shows who has the port. The running job itself: nothing is wrong. Else choose
    another port for the job, on all hosts: {setting}.

    - Leftover: if it is left of an earlier job, `kill {pid}` ends it.
    - Service: it belongs to the host itself; leave it alone.

    ## Source
    PyTorch, environment variable initialization (MASTER_PORT: "a free port on the machine with rank 0"); for MindSpore
    it is MS_SCHED_PORT. For workers of torchrun its agent listens there, which TORCHELASTIC_USE_AGENT_STORE=True shows.
    PyTorch's store listens for IPv4 alone where the port of IPv6 is taken, so a program that listens for IPv6 alone is
    no obstacle where MASTER_ADDR means IPv4 (tried with PyTorch 2.13). torchrun for one host, without `--master-port`,
    takes a free port from PyTorch 2.12 on (torch/distributed/run.py); it is a warning where the release is not known.
    """
    if not launch.master_addr:
        raise Skip("MASTER_ADDR is not given")
    if launch.env.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise Skip("started by torchrun: its agent listens there for the ranks")
    torch = release_numbers(python.packages.get("torch", "")) if python and launch.has_default_port else ()
    if torch >= FREE_PORT:
        raise Skip("torchrun of PyTorch 2.12 and later takes a free port for one host")
    is_own = launch.nodes in (None, 1) and launch.is_on_this_host(1) and means_own_host(launch.master_addr)
    if not is_own and not names.is_master(launch.master_addr, addresses.addresses):
        raise Skip(filled("not the host of MASTER_ADDR, {0}", launch.master_addr))
    meant = names.names[launch.master_addr].addresses if launch.master_addr in names.names else (launch.master_addr,)
    ipv4_alone = bool(meant) and all(is_address(address) and ":" not in address for address in meant)
    holders = [one for one in listeners.holders(launch.master_port) if not (ipv4_alone and one.ipv6_only)]
    if holders:
        first = holders[0]
        yield Finding(
            "MASTER_PORT {port} is taken by {owner}",
            **first.values,
            setting=launch.port_option(listeners.free_behind(first.port)),
            observed="taken",
            expected="a free port",
        ).as_warning(launch.has_default_port and not torch)
