from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.agreed_addresses import hosts_file_command, hosts_file_lines
from doctor.facts.names import NO_ANSWER, HostNames
from doctor.facts.network import HostAddresses
from doctor.facts.visit import Reachability
from doctor.job import limit_items

CAUSES = {
    "master-address-unresolved": ("names=name",),
}
GLOO_TAKES = "127.0.0.1"
"""Where a host cannot resolve its own name."""
MOST_LINES = 8
"""Of /etc/hosts in the printed command; `doctor fix` writes them all."""
ONE_HOST = "only one host: it resolves no other name"


@check(severity=WARNING, area="connectivity", single_host=ONE_HOST, follows_from=CAUSES)
def host_name_unresolved(
    names: PerHost[HostNames], addresses: PerHost[HostAddresses] | None, fleet: PerHost[Reachability]
) -> Iterator[Finding]:
    """Every host can resolve the name of every host of the fleet.

    ## Why it matters
    torchrun, mpirun, DeepSpeed and msrun pass host names from host to host: rank 0 announces its name, the others look
    it up. A host that cannot resolve it ends with "Name or service not known", and all others wait for it until the
    timeout.

    ## What to do
    On {host}: `{hosts_command}`{others}, or correct its name server. Then `getent hosts {first}` prints an
    address. Where /etc/hosts has the name already, `chmod 644 /etc/hosts`, and `grep ^hosts: /etc/nsswitch.conf` must
    print the word files.

    ## In a container
    Start the container of {host} again with `docker run --network host`, or with `--add-host` for each such name
    and its address. In Kubernetes: a headless Service with `publishNotReadyAddresses: true`, so that pods have names
    before they are ready, and `subdomain` with its name in the pods; with `hostNetwork: true` also
    `dnsPolicy: ClusterFirstWithHostNet`, without which the node's name server is asked. `getent hosts {first}` inside
    must print an address.

    ## Source
    PyTorch `dynamic_rendezvous.py` (the agent of rank 0 publishes its own host name as MASTER_ADDR); MindSpore
    documentation, msrun ("DNS resolution failed: Name or service not known"). A name of the host list that no host at
    all can resolve, and that none calls itself, is taken for an alias of the SSH configuration and not judged; the name
    that a headless Service gives a pod that was reached is judged (Kubernetes documentation, "DNS for Services and
    Pods": a pod has a record when it is ready, or with `publishNotReadyAddresses`). Where a name server answers for
    other names and for this one not in 8 s, the name is unknown: measured with 64 pods at once and a slow name server.
    """
    if len(names) < 2 or not any(host_names.fleet for host_names in names.values()):
        raise Skip(ONE_HOST if len(names) < 2 else "the hosts are known by their addresses alone")
    resolvable_names = {
        name for host_names in names.values() for name, meaning in host_names.names.items() if meaning.addresses
    }
    resolvable_names |= {host_names.own for host_names in names.values()}
    resolvable_names |= _names_of_services(names, fleet)
    slow: dict[str, str] = {}
    is_clean = True
    for host, host_names in names.items():
        lost = {
            name: meaning
            for name, meaning in host_names.names.items()
            if name in resolvable_names and not meaning.addresses
        }
        own = (host_names.own, host_names.full)
        has_answers = any(meaning.addresses for name, meaning in host_names.names.items() if name not in own)
        if lost and has_answers and all(meaning.error == NO_ANSWER for meaning in lost.values()):
            slow[host] = min(lost)
        elif lost:
            is_clean = False
            lines = hosts_file_lines(lost, names, addresses or {}, fleet, host_names)
            name_list, more = limit_items(sorted(lost), 4), len(lost) - len(lines[:MOST_LINES] or [""])
            yield Finding(
                "cannot resolve {names}: {reason}",
                hosts=(host,),
                names=name_list,
                taken=GLOO_TAKES if host_names.own in lost else "",
                first=min(lost),
                count=len(lost),
                reason=lost[min(lost)].error,
                observed=filled("{0} of {1} names without an address", len(lost), len(host_names.names)),
                expected="an address for every name",
                lines=lines,
                hosts_command=hosts_file_command(lines[:MOST_LINES], min(lost)),
                others=", and a line for each other such name" if more else "",
            )
    if slow and is_clean:
        host, name = min(slow.items())
        raise Unreadable(filled("{0} had no answer for {1} in 8 s, and one for other names", host, name))


def _names_of_services(names: PerHost[HostNames], fleet: PerHost[Reachability]) -> set[str]:
    """Names that the fleet looks up for its pods, such as ``train-0.train`` for the pod train-0 or train-0-x7k2p.

    The report calls no host so; what it does call so may be an alias. One in the domain of a host's full name was
    made up from that, for programs that announce such names, and may be none. A pod with the network of its node calls
    itself as the node is called.
    """
    own_names = {host_names.own.partition(".")[0] for host_names in names.values()}
    own_names |= {name for host in names for name in (host, host.rpartition("-")[0])}
    domains = {host_names.full.partition(".")[2] for host_names in names.values()}
    return {
        name
        for host_names in names.values()
        for name in host_names.names
        if name not in fleet and name.partition(".")[0] in own_names and name.partition(".")[2] not in {"", *domains}
    }
