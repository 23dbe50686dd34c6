from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.engine.addresses import is_localhost
from doctor.facts.agreed_addresses import hosts_file_command, hosts_file_lines, listed_name
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses
from doctor.facts.visit import Reachability

ADVISORY = ("others", "addresses")
ONE_HOST = "only one host: no other host resolves its name"


@check(severity=WARNING, area="connectivity", single_host=ONE_HOST, advisory=ADVISORY)
def host_name_is_localhost(
    names: HostNames,
    others: PerHost[HostNames] | None,
    addresses: PerHost[HostAddresses] | None,
    fleet: PerHost[Reachability],
) -> Iterator[Finding]:
    """Every host has a name of its own, not localhost.

    ## Why it matters
    localhost resolves to the local host everywhere. A rank that announces it as its address, as Gloo and torchrun do
    with the host name, makes the others connect to themselves. Logs of two such hosts cannot be distinguished.

    ## What to do
    Give {host} the name that the list of hosts has for it: `hostname {listed} && echo {listed} > /etc/hostname`. Then
    on every host where `getent hosts {listed}` prints nothing: `{hosts_command}`. Leave the lines of localhost in
    /etc/hosts as they are: other programs need them.

    ## In a container
    Start the container of {host} again with a name of its own: `docker run --hostname {listed}`.

    ## Source
    RFC 6761, section 6.3: localhost names always resolve to loopback. systemd names a host localhost where neither
    /etc/hostname nor DHCP gives a name (hostname(5)).
    """
    if len(fleet) < 2:
        raise Skip(ONE_HOST)
    if is_localhost(names.own):
        listed = listed_name(names, others or {})
        lines = hosts_file_lines([listed], others or {}, addresses or {}, fleet) if listed else []
        yield Finding(
            "the host is called {observed}",
            observed=names.own,
            addresses=list(names.own_resolution.addresses),
            listed=listed or None,
            hosts_command=hosts_file_command(lines),
            expected="a name of its own",
        )
