from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.firewall import FirewallRules
from doctor.facts.firewall.redirects import losing_rules
from doctor.facts.interfaces import Interfaces
from doctor.facts.network import HostAddresses
from doctor.facts.network_test import NetworkAnswer
from doctor.net.assemble import assemble_matrix
from doctor.net.findings import measured_slow_paths, require_no_doubt, slow_path_finding

ONE_HOST = "only one host: there is no other to connect to"

NAMES_RULES = ("rules", "addresses", "interfaces")
"""What only root may read names the rule; connections that were tried need none."""


@check(severity=ERROR, area="network", single_host=ONE_HOST, advisory=NAMES_RULES)
def net_packets_lost(
    answers: PerHost[NetworkAnswer],
    rules: PerHost[FirewallRules] | None,
    addresses: PerHost[HostAddresses] | None,
    interfaces: PerHost[Interfaces] | None,
) -> Iterator[Finding]:
    """No host, link or direction of the hosts' network loses many more packets than the others.

    ## Why it matters
    TCP hides a lossy cable: connections open, and throughput falls to a part, now and then. Timeouts of collectives
    follow under load.

    ## What to do
    - The cause: {named} Measure again: `doctor net {all_hosts} --select net-packets-lost`.
    - Search: First on {ends}, each as root: `{nft}`, `{iptables}` and `{queues}` print the command that deletes each
      rule that drops, and each queue that delays or limits. Where they print none: `ip -s -s link` on both ends, twice,
      60 s apart. Errors, CRC or frame rise: reseat the cable or module, then change it. Dropped or missed rise:
      `ethtool -G <interface> rx <maximum>`, with the maximum of `ethtool -g <interface>`. None rises: the packets are
      lost on the way, so read the counters of the switch ports. Measure again: `doctor net {all_hosts} --select
      net-packets-lost`.

    ## Source
    The kernel counts the segments that it sent again (TCP_INFO, tcpi_total_retrans) while each pair measures its
    throughput alone. A host or path is named that loses at least five times as much as the others and 0.5 % of its
    segments, by the same statistics as in `doctor explain net-path-slow`. Losses come in bursts: what looks lossy is
    measured up to seven times more, alone, and each time must show it. It is an error from 16 times as much as the
    others on, where TCP sends a quarter of what it does elsewhere (its throughput falls with the square root of the
    losses), else a warning. What loses 0.5 % each of three times is reported without a comparison, too, such as
    between two hosts or where all paths lose as much, and is an error from 1.6 % on, 16 times what a sound network
    loses at most. Unknown where a path of the test was not measured. A rule of nftables or iptables that drops some
    packets of all ports, at random or by rate, on a host of the path is named: it loses them, or only those that it
    counts, such as a rate that is never reached. Else a queueing discipline is named that drops or limits what one of
    these hosts sends, as in `net-path-slow`.
    """
    for path in measured_slow_paths(answers):
        if path.figure == "retransmissions":
            hosts = assemble_matrix(answers).hosts
            ends = [hosts[number] for number in path.hosts]
            yield slow_path_finding(
                path,
                answers,
                "packets are lost {place}: {value} of the segments were sent again, {norm} (confidence "
                "{confidence}, {measured} measurements){because}",
                interfaces or {},
                losing_rules(ends, addresses or {}, rules or {}, addresses or {}),
            )
    require_no_doubt(answers, of_losses=True)
