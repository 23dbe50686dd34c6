import re
from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled, joined
from doctor.facts.names import HostNames
from doctor.job import LaunchConfig
from doctor.job.variables import GLOO_INTERFACE

ONE_HOST = "only one host: nothing to compare"


@check(severity=ERROR, area="connectivity", single_host=ONE_HOST)
def host_name_repeated(names: PerHost[HostNames], launch: LaunchConfig) -> Iterator[Finding]:
    """Every host has a unique host name.

    ## Why it matters
    MindSpore and MPI launchers count the ranks of a host by its name. Two hosts with one name look like a single host
    with twice the ranks. Device numbers run past the last device ("Got device count[8] and device id[9]") or two ranks
    take one device. NCCL and HCCL logs of the two can no longer be distinguished.

    ## What to do
    {remedy}

    Give each host a unique name: `hostname NAME && echo NAME > /etc/hostname` on {host}, and the same name in
    /etc/hosts everywhere.

    ## In a container
    Start the container of {host} again with a name of its own, `docker run --hostname NAME`, or with the name of its
    machine, `docker run --net=host --uts=host`.

    ## Source
    MindSpore documentation, msrun ("host names must differ on all nodes"), and its FAQ on distributed configuration.
    Hosts with one name are one machine where they also have one boot (/proc/sys/kernel/random/boot_id), and one
    namespace of network and mounts, as two names of one machine in the list have; two containers of a machine differ.
    It is a warning for a job of torch that goes by no host name: its launch line, or the variables of its ranks, name
    MASTER_ADDR, GLOO_SOCKET_IFNAME is set on each host, no mpirun starts it, and torchrun is not to find the store by
    name.
    """
    if len(names) < 2:
        raise Skip(ONE_HOST)
    called = defaultdict(list)
    for host, host_names in names.items():
        called[host_names.own.lower()].append(host)
    for name, hosts in sorted(called.items()):
        machines = {names[host].machine for host in hosts}
        if len(hosts) > 1 and len(machines) == 1 and machines != {""}:
            yield Finding(
                "{names} are one machine, {name}: the list of hosts names it {count} times",
                hosts=hosts,
                names=joined(" and ", hosts),
                name=name,
                count=len(hosts),
                observed=filled("{0} names of one machine", len(hosts)),
                expected="every machine once",
                remedy=filled("Take {0} out of the list of hosts.", ", ".join(hosts[1:4])),
            )
        elif len(hosts) > 1:
            yield Finding(
                "{count} hosts have the host name {name}",
                hosts=hosts,
                name=name,
                count=len(hosts),
                observed=filled("{0} hosts named {1}", len(hosts), name),
                expected="a unique name for each host",
                remedy=_remedy(hosts, set(called)),
            ).as_warning(_goes_by_no_name(hosts, launch))


BY_NAME = ("openmpi", "hydra", "msrun", "deepspeed")
"""Launchers that tell hosts apart by their names."""


def _goes_by_no_name(hosts: list[str], launch: LaunchConfig) -> bool:
    torch_alone = launch.framework == "torch" or "torchrun" in launch.launchers
    by_name = launch.store_by_name or launch.announces_name or not {*BY_NAME}.isdisjoint(launch.launchers)
    interface = all(launch.environ_of(host).get(GLOO_INTERFACE) for host in hosts)
    return torch_alone and bool(launch.master_addr) and interface and not by_name


def _remedy(hosts: list[str], names: set[str]) -> str:
    """Hosts that the inventory calls otherwise, by names that no host has, get those back."""
    strangers = [host for host in hosts if host.lower() not in names and re.fullmatch(r"[A-Za-z][\w.-]{0,62}", host)]
    if not strangers or len(strangers) < len(hosts) - 1:
        return ""
    first = strangers[0]
    rest = filled(", and so on for {0}", ", ".join(strangers[1:4])) if len(strangers) > 1 else ""
    return filled("Give {0} its own name, on {1}: `hostname {2} && echo {3} > /etc/hostname`{4}.", *[first] * 4, rest)
