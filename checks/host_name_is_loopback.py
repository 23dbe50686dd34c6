from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check, filled
from doctor.engine.addresses import is_localhost
from doctor.facts.agreed_addresses import hosts_file_lines
from doctor.facts.interfaces import Interfaces, only_usable
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses
from doctor.facts.visit import Reachability

ADVISORY = ("interfaces",)
ONE_HOST = "only one host: its loopback address is enough"


@check(severity=WARNING, area="connectivity", single_host=ONE_HOST, advisory=ADVISORY)
def host_name_is_loopback(
    names: HostNames,
    others: PerHost[HostNames],
    addresses: PerHost[HostAddresses] | None,
    fleet: PerHost[Reachability],
    interfaces: Interfaces | None,
) -> Iterator[Finding]:
    r"""Every host's own name resolves to an address that the other hosts can reach.

    ## Why it matters
    A program that looks up its own host name to find its address announces 127.0.0.1 or 127.0.1.1, and the others
    connect to themselves. Gloo fails this way ("Connection refused, remote=[127.0.0.1]"). A rank table made by
    `hccl_tools.py` gets a loopback server_id; a launcher that asks for rank 0 by name waits on the wrong address.

    ## What to do
    On {host}: `sed -i.bak -E '/^(127\.|::1)/s/[[:space:]]{name}([[:space:]]|$)/\1/g' /etc/hosts && echo
    {hosts_entry} >> /etc/hosts`. Until then, in the job: `export GLOO_SOCKET_IFNAME={nic}`.

    ## In a container
    Start the container of {host} again with `docker run --network host`, or with `--add-host {name}:{own_address}`, an
    address that the other hosts reach. A change of /etc/hosts inside is lost with the container. In Kubernetes the
    pod's own line comes from the kubelet: leave `hostAliases` of this name out. Until then, in the job: `export
    GLOO_SOCKET_IFNAME={nic}`.

    ## Source
    Debian and its children write the line `127.0.1.1 NAME` at installation (Debian Reference, "The hostname
    resolution"). That Gloo then connects to loopback was measured with PyTorch 2.13; `hccl_tools.py` calls
    `gethostbyname(gethostname())`.
    """
    if len(fleet) < 2:
        raise Skip(ONE_HOST)
    if is_localhost(names.own):
        raise Skip(filled("the host is called {0}: host-name-is-localhost reports it", names.own))
    meaning = names.own_resolution
    if meaning.is_loopback:
        lines = hosts_file_lines([names.own], others, addresses or {}, fleet, file_names=names)
        address = next(candidate for candidate in meaning.addresses if candidate not in meaning.non_loopback)
        yield Finding(
            "its own name {name} resolves to {address}",
            name=names.own,
            address=address,
            observed=filled("{0} is {1}", names.own, ", ".join(meaning.addresses)),
            expected="an address that other hosts reach",
            lines=lines,
            hosts_entry=lines[0] if lines else None,
            own_address=lines[0].split()[0] if lines else None,
            nic=only.label if interfaces and (only := only_usable(interfaces)) else None,
        )
