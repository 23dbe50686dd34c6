from collections.abc import Iterator, Mapping

from doctor import ERROR, Finding, PerHost, check, filled, joined
from doctor.facts.firewall import FirewallRules
from doctor.facts.firewall.packets import to_ranges
from doctor.facts.firewall.redirects import ANY_PORT, deletion, find_redirects
from doctor.facts.firewall.rules import shorten_rule
from doctor.facts.firewall.walk import WalkPosition
from doctor.facts.network import HostAddresses
from doctor.facts.network_test import NetworkAnswer
from doctor.net.findings import LocatedFailure, located_failures

CAUSES: dict[str, tuple[str, ...]] = {"duplicate-address": ()}
ONE_HOST = "only one host: there is no other to connect to"
REDIRECTED = (
    "As root on {0}: `{1}` deletes the rule that redirects them, {2} (table {3}, chain {4}). Delete it as well in the "
    "file that loads the rules at boot, such as /etc/nftables.conf or those of /etc/iptables. A proxy "
    "of a service mesh makes such rules in its pods: take it out of the job's pods instead."
)
SEARCHED = (
    "Rules that redirect, as root on {0}: `nft -a list ruleset | grep -E 'table|chain|redirect|dnat'` prints them and "
    "their numbers (handles), and `nft delete rule <family> <table> <chain> handle <number>` deletes one; of iptables, "
    "`iptables-save -t nat`. Where there is none, two hosts may have the address: `ping -c 1 {0}`, then `ip "
    "neighbour`, on {1} and on another host must show one hardware address for it."
)

NAMES_RULES = ("rules", "addresses")
"""What only root may read names the rule; connections that were tried need none."""


@check(severity=ERROR, area="network", single_host=ONE_HOST, follows_from=CAUSES, advisory=NAMES_RULES)
def net_answered_by_other(
    answers: PerHost[NetworkAnswer],
    rules: PerHost[FirewallRules] | None,
    addresses: PerHost[HostAddresses] | None,
) -> Iterator[Finding]:
    """What answers at a host's address and port is that host.

    ## Why it matters
    Two hosts with one address, a NAT rule or a proxy on the way take connections that are meant for a rank. The job
    hangs, or talks to the wrong host.

    ## What to do
    {remedy}

    ## Source
    Both ends of a test connection prove with a random key of the run which host they are. Here another host proved
    itself, or what answered does not know the key. A rule of nftables or iptables that redirects these ports, on the
    host that connections go to or on that which opens them, is named.
    """
    for failure in located_failures(answers, "foreign"):
        redirects = _redirects(failure, rules or {}, addresses or {})
        values = failure.values
        searched = filled(SEARCHED, values["other"], values["first"])
        yield Finding(
            "another program or host answers connections {place}: {failed} of {attempts} attempts on {ports} "
            "({how}){redirected}{doubt}",
            hosts=[host for host, _ in redirects] or failure.hosts,
            observed=", ".join(failure.outcomes),
            expected="the host itself",
            redirected=filled(": {0}", joined("; ", [_named(*redirect) for redirect in redirects]))
            if redirects
            else "",
            remedy=joined(" ", [_remedy(*redirect) for redirect in redirects]) or searched,
            **values,
        )


def _redirects(
    failure: LocatedFailure, rules: Mapping[str, FirewallRules], addresses: Mapping[str, HostAddresses]
) -> list[tuple[str, WalkPosition]]:
    """The hosts that redirect the attempts, each with its rule: those that they go to, else the one that opens them."""
    ports = to_ranges((number, number) for number in failure.numbers) or ANY_PORT
    source, target = failure.example
    for hosts, peer, outgoing in (([*failure.hosts, target], source, False), ([source], target, True)):
        known = [host for host in dict.fromkeys(hosts) if host in rules and {host, peer} <= addresses.keys()]
        positions = (
            (host, find_redirects(rules[host], addresses[host], [addresses[peer]], ports, outgoing=outgoing))
            for host in known
        )
        if found := [(host, position) for host, ones in positions for position in ones[:1]]:
            return found
    return []


def _named(host: str, position: WalkPosition) -> str:
    return filled("{0} on {1} redirects them", shorten_rule(position.rule), host)


def _remedy(host: str, position: WalkPosition) -> str:
    rule = deletion(position)
    return filled(REDIRECTED, host, *rule) if rule.command else filled(SEARCHED, host, host)
