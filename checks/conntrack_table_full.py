from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.kernel import Conntrack

MAX_SHARE = 0.8


@check(severity=ERROR, area="kernel")
def conntrack_table_full(conntrack: Conntrack) -> Iterator[Finding]:
    """At least a fifth of the table of tracked connections is free.

    ## Why it matters
    Where the firewall tracks connections, each takes one entry of a table. When the table is full the packets of new
    connections are dropped ("nf_conntrack: table full, dropping packet"), and ranks wait for each other without any
    error message.

    ## What to do
    On {host}: `sysctl -w net.netfilter.nf_conntrack_max={double} && echo "net.netfilter.nf_conntrack_max = {double}" >>
    /etc/sysctl.d/99-zz-cluster.conf`.

    ## In a container
    The table is that of the machine on which the container of {host} runs. There, as root: `sysctl -w
    net.netfilter.nf_conntrack_max={double}`, or do not track the training network: `nft add rule ip raw prerouting iif
    NIC notrack`.

    ## Source
    Kernel documentation, nf_conntrack-sysctl; the message is the kernel's own. The share is ours. A full table is an
    error; one that is nearly full is a warning. The buckets grow with the table, so that each holds as few as before.
    """
    if conntrack.count > MAX_SHARE * conntrack.maximum:
        yield Finding(
            "{observed} of {most} entries for tracked connections are in use; expected at most {expected}",
            observed=conntrack.count,
            most=conntrack.maximum,
            expected=int(MAX_SHARE * conntrack.maximum),
            double=2 * conntrack.maximum,
            buckets=2 * conntrack.buckets if conntrack.buckets else "",
            table="nf_conntrack",
        ).as_warning(conntrack.count < conntrack.maximum)
