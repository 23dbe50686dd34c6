from collections import Counter, defaultdict
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.engine.grouping import lists_by_key
from doctor.facts.agreed_addresses import hosts_file_correction, hosts_file_lines
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses
from doctor.facts.visit import Reachability

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="connectivity", single_host=ONE_HOST)
def host_name_ambiguous(
    names: PerHost[HostNames], addresses: PerHost[HostAddresses] | None, fleet: PerHost[Reachability]
) -> Iterator[Finding]:
    """Every host name resolves to the same host everywhere.

    ## Why it matters
    A stale line in one /etc/hosts sends one host's connections to an address that is no longer in use, or to another
    machine. The job hangs at its start, and all other hosts look healthy.

    ## What to do
    As root on {host}: `{correction}` corrects /etc/hosts. Where `getent hosts {name}` gives another address there even
    then, correct the name server's entry. If the hosts are on separate networks on purpose, use addresses.

    ## In a container
    Compare `getent hosts {name}` inside the container of {host} with another one and make them agree: `docker run
    --add-host {name}:ADDRESS`, `hostAliases` of the pod, or the entry of the name server. If the containers are on
    separate networks on purpose, use addresses.

    ## Source
    Follows from how names are used (see host-name-unresolved). A name may have several addresses: hosts disagree only
    when they have no address in common, and no two that one host has, such as its IPv4 and its IPv6 address. Loopback
    addresses are left to host-name-is-loopback.
    """
    if len(names) < 2:
        raise Skip(ONE_HOST)
    holders = lists_by_key((entry, host) for host, fact in (addresses or {}).items() for entry in fact.addresses)
    meanings: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    address_sets: dict[int, frozenset[str]] = {}
    for host, host_names in names.items():
        for name, meaning in host_names.names.items():
            resolved = address_sets.get(id(meaning))  # hosts that agree have one object in common
            if resolved is None:
                resolved = address_sets[id(meaning)] = frozenset(meaning.non_loopback)
            if resolved:
                meanings[name][host] = resolved
    targets = {
        each: each.union(*(holders[item] for item in each if len(holders.get(item, ())) == 1))
        for each in address_sets.values()
    }
    for name, by_host in sorted(meanings.items()):
        count = Counter(by_host.values())
        most = max(count.values())
        norms = [address_set for address_set in count if count[address_set] == most]
        norm = targets[norms[0]]
        tie = any(norm.isdisjoint(targets[address_set]) for address_set in norms)
        outlier_hosts = [host for host, address_set in by_host.items() if tie or norm.isdisjoint(targets[address_set])]
        for host_answer in sorted({tuple(sorted(by_host[host])) for host in outlier_hosts}):
            expected = "the same everywhere; no majority shows which" if tie else ", ".join(sorted(norms[0]))
            lines = hosts_file_lines([name], names, addresses or {}, fleet)
            yield Finding(
                "{name} resolves to {addresses}; expected {expected}",
                hosts=[host for host in outlier_hosts if by_host[host] == frozenset(host_answer)],
                name=name,
                addresses=list(host_answer),
                observed=", ".join(host_answer),
                expected=expected,
                lines=lines,
                correction=hosts_file_correction(name, lines),
            )
