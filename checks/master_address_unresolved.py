from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.facts.agreed_addresses import hosts_file_command, hosts_file_lines
from doctor.facts.names import HostNames, is_address
from doctor.facts.network import HostAddresses
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig
from doctor.job.variable_names import is_misspelt


@check(severity=ERROR, area="connectivity")
def master_address_unresolved(
    names: HostNames,
    others: PerHost[HostNames],
    addresses: PerHost[HostAddresses] | None,
    fleet: PerHost[Reachability],
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """Every host can resolve MASTER_ADDR.

    ## Why it matters
    Each rank connects to MASTER_ADDR before anything else. Where the name has no address, the ranks of that host end at
    once ("host not found: Name or service not known"). The ranks of the other hosts wait for them.

    ## What to do
    - Misspelt: write {option} in place of {name}.
    - Entry: on {host}: `{hosts_command}`, or use an address instead of the name: {option}. `getent hosts {name}` must
      print the same address on every host. Where /etc/hosts has the name already, `chmod 644 /etc/hosts`, and `grep
      ^hosts: /etc/nsswitch.conf` must print the word files.

    ## In a container
    Use an address instead of the name: {option}. Or start the container of {host} again with
    `docker run --add-host {name}:{address}`. In Kubernetes: a headless Service with
    `publishNotReadyAddresses: true`, and `subdomain` with its name in the pods. `getent hosts {name}` inside must print
    the same address everywhere.

    ## Source
    PyTorch, environment variable initialization (MASTER_ADDR "must be set", an address or a host name that resolves);
    for MindSpore the variable is MS_SCHED_HOST.
    """
    if not launch.master_addr:
        raise Skip("MASTER_ADDR is not given")
    if is_address(launch.master_addr):
        raise Skip("MASTER_ADDR is an address, not a name")
    if launch.master_addr not in names.names:
        raise Skip(filled("{0} was not looked up", launch.master_addr))
    meaning = names.names[launch.master_addr]
    if not meaning.addresses:
        lines = hosts_file_lines([launch.master_addr], others, addresses or {}, fleet)
        near = [host for host in fleet if is_misspelt(launch.master_addr, host)]
        meant = near[0] if len(near) == 1 and not lines else ""
        address = lines[0].split()[0] if lines else None
        yield Finding(
            "MASTER_ADDR {name} does not resolve: {reason}",
            name=launch.master_addr,
            reason=meaning.error,
            observed=meaning.error,
            expected=filled("{0}, a host of this run", meant) if meant else "an address",
            lines=lines,
            hosts_command=hosts_file_command(lines, launch.master_addr),
            address=address,
            option=launch.master_option(meant or address or ""),
            case="Misspelt" if meant else "Entry",
        )
