from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.engine.addresses import is_localhost
from doctor.facts.names import HostNames
from doctor.facts.visit import Reachability

ONE_HOST = "only one host: no other host resolves its name"


@check(severity=WARNING, area="connectivity", single_host=ONE_HOST)
def host_name_is_localhost(names: HostNames, fleet: PerHost[Reachability]) -> Iterator[Finding]:
    """Every host has a name of its own, not localhost.

    ## Why it matters
    localhost resolves to the local host everywhere. A rank that announces it as its address, as Gloo and torchrun do
    with the host name, makes the others connect to themselves; logs of two such hosts cannot be distinguished.

    ## What to do
    Give {host} a name of its own: `hostnamectl set-hostname NAME`, and put a line with its real address and this name
    into /etc/hosts on all hosts. Leave the lines of localhost in /etc/hosts as they are: other programs need them. In a
    container: `docker run --hostname NAME`.

    ## Source
    RFC 6761, section 6.3: localhost names always resolve to loopback. systemd names a host localhost where neither
    /etc/hostname nor DHCP gives a name (hostname(5)).
    """
    if len(fleet) < 2:
        raise Skip(ONE_HOST)
    if is_localhost(names.own):
        yield Finding(
            "the host is called {observed}",
            observed=names.own,
            addresses=list(names.own_resolution.addresses),
            expected="a name of its own",
        )
