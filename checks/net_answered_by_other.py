from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.network_test import NetworkAnswer
from doctor.net.findings import located_failures

CAUSES: dict[str, tuple[str, ...]] = {"duplicate-address": ()}
ONE_HOST = "only one host: there is no other to connect to"


@check(severity=ERROR, area="network", single_host=ONE_HOST, follows_from=CAUSES)
def net_answered_by_other(answers: PerHost[NetworkAnswer]) -> Iterator[Finding]:
    """What answers at a host's address and port is that host.

    ## Why it matters
    Two hosts with one address, a NAT rule or a proxy on the way take connections that are meant for a rank. The job
    hangs, or talks to the wrong host.

    ## What to do
    Rules that redirect, as root on {other}: `nft -a list ruleset | grep -E 'table|chain|redirect|dnat'` prints them and
    their numbers (handles), and `nft delete rule <family> <table> <chain> handle <number>` deletes one; of iptables,
    `iptables-save -t nat`. Where there is none, two hosts may have the address: `ping -c 1 {other}`, then `ip
    neighbour`, on {first} and on another host must show one hardware address for it. The cause: {place}.

    ## Source
    Both ends of a test connection prove with a random key of the run which host they are. Here another host proved
    itself, or what answered does not know the key.
    """
    for failure in located_failures(answers, "foreign"):
        yield Finding(
            "something else answers: {place}; {failed} of {attempts} attempts on {ports} ({how}){doubt}",
            hosts=failure.hosts,
            observed=", ".join(failure.outcomes),
            expected="the host itself",
            **failure.values,
        )
