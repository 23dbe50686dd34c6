from collections.abc import Iterator, Mapping

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.engine.texts import first_few
from doctor.facts.firewall import FirewallRules
from doctor.facts.firewall.redirects import losing_rules
from doctor.facts.firewall.rules import is_hashed
from doctor.facts.network import HostAddresses
from doctor.facts.network_test import NetworkAnswer
from doctor.net.findings import located_failures

ONE_HOST = "only one host: there is no other to connect to"

NAMES_RULES = ("rules", "addresses")
"""What only root may read names the rule; connections that were tried need none."""


@check(severity=ERROR, area="network", single_host=ONE_HOST, advisory=NAMES_RULES)
def net_flows_lost(
    answers: PerHost[NetworkAnswer],
    rules: PerHost[FirewallRules] | None,
    addresses: PerHost[HostAddresses] | None,
) -> Iterator[Finding]:
    """Connections between two hosts pass from every source port.

    ## Why it matters
    Some connections work and others never do, on the same ports. A rule or a path that is chosen by a
    hash of the ports drops its share of them. The share says how many of the equal paths are broken. The rendezvous
    succeeds, one of many connections of a collective hangs, and the next start hangs on another one, or on none. No
    port is to blame: opening ports mends nothing.

    ## What to do
    - The rule: {named} Measure again: `doctor net {all_hosts} --select net-flows-lost`.
    - Search: First the hosts' own rules, as root on {first} and {other}: `nft -a list ruleset | grep -E
    'table|chain|hash|drop'` prints those that drop by a hash of the ports, with their numbers (handles): `nft delete
    rule <family> <table> <chain> handle <number>`. Where there is none: `cat /proc/net/bonding/*` and `ip route show`
    there list the members of a bond and the equal routes (ECMP); find the one that fails, {place}. On the switches,
    look at the state and the error counters of each member port. Take the bad member out, then replace its cable,
    transceiver or port. Look as well for a balancer or a firewall with several nodes between the hosts: one of them
    drops packets.

    ## Source
    Bonds and switches choose the path of a connection by a hash of its addresses and ports (RFC 2992;
    Documentation/networking/bonding.rst, xmit_hash_policy). Where hosts reach each other in part, 32 connections are
    tried from as many source ports, and the very same ones again: those that failed failed each time, and those that
    passed passed each time, which packets that are lost by chance do not do. A rule of nftables on an end that drops by
    a hash, of all ports and of the other end's packets, is named.
    """
    for failure in located_failures(answers, "flows"):
        ends = failure.hosts
        of_hosts: Mapping[str, HostAddresses] = addresses or {}
        peers = ends if len(ends) > 1 else of_hosts
        dropping, remedy = first_few(losing_rules(ends, peers, rules or {}, of_hosts, is_hashed))
        yield Finding(
            "some connections {place} fail depending on their source port: {flows}{dropping}{doubt}",
            hosts=failure.hosts,
            observed=failure.details[0] if failure.details else "some flows",
            expected="every source port passes",
            flows=failure.details[0] if failure.details else filled("on {0}", failure.ports),
            dropping=dropping,
            case="The rule" if remedy else "Search",
            **({"named": remedy} if remedy else {}),
            **failure.values,
        )
