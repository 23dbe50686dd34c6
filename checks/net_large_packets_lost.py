from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.network_test import NetworkAnswer
from doctor.net.findings import located_failures

ONE_HOST = "only one host: there is no other to connect to"
CAUSES: dict[str, tuple[str, ...]] = {"firewall-blocks-job": ("loses",)}
"""A rule that lets connections open and drops what follows, as by the length of a packet."""


@check(severity=ERROR, area="network", single_host=ONE_HOST, follows_from=CAUSES)
def net_large_packets_lost(answers: PerHost[NetworkAnswer]) -> Iterator[Finding]:
    """Full-size packets pass wherever small ones do.

    ## Why it matters
    Something on the way has a smaller MTU than the hosts, and the message that tells the sender so does not come back.
    Connections open, the rendezvous works, and the first tensor hangs until a timeout.

    ## What to do
    At once, as root on every host, for the interface that the job uses: `ip link set dev <interface> mtu {largest}`,
    the largest packet that passes. For good, find the place with the smaller MTU: `tracepath -n {other}` on {first},
    and back, names it; `ping -c 3 -M do -s {payload} {other}` passes once it is corrected. Give every interface and
    switch port on the way the same MTU, and let ICMP "fragmentation needed" (ICMPv6 "packet too big") through.

    ## Source
    On one port of each pair some 4 KiB or three full segments are sent in each direction. Where they are lost and a
    connection with smaller segments passes, the largest size that passes is searched for, to 8 bytes. RFC 2923
    describes the fault.
    """
    for failure in located_failures(answers, "large"):
        largest = failure.largest_bytes
        yield Finding(
            "small packets pass {place}, full-size ones do not: {size} ({how}){doubt}",
            hosts=failure.hosts,
            size=filled("the largest that passes has {0} bytes", largest)
            if largest
            else "none of the sizes tried passes",
            largest=largest or "SIZE",
            payload=largest - 28 if largest else "SIZE",
            observed=filled("{0} bytes", largest) if largest else "lost",
            expected="the MTU of the interfaces",
            loses="later packets",
            **failure.values,
        )
