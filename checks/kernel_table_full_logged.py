from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.kernel_log import KernelLog

CAUSES = {"neighbour-table-small": ("table",), "conntrack-table-full": ("table",)}
REMEDIES = {
    "file-max": "`sysctl fs.file-nr` shows the files that are open; raise `sysctl -w fs.file-max=9223372036854775807`.",
    "nf_conntrack": "`sysctl net.netfilter.nf_conntrack_count`; raise `net.netfilter.nf_conntrack_max`, or take the "
    "job's connections out of connection tracking.",
    "arp_cache": "`ip -4 neigh | wc -l`; raise gc_thresh1 to gc_thresh3 of `net.ipv4.neigh.default` above the number "
    "of hosts.",
    "ndisc_cache": "`ip -6 neigh | wc -l`; raise gc_thresh1 to gc_thresh3 of `net.ipv6.neigh.default` above the number "
    "of hosts.",
    "SYN flooding": "`sysctl -w net.ipv4.tcp_syncookies=1`, and raise `sysctl -w net.core.somaxconn=4096` and "
    "`sysctl -w net.ipv4.tcp_max_syn_backlog=8192`: more hosts connect at once than the queue of the port holds.",
    "TCP": "`cat /proc/net/sockstat`; raise `net.ipv4.tcp_mem`, or find what opens so many connections.",
}


@check(severity=WARNING, area="kernel", follows_from=CAUSES)
def kernel_table_full_logged(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log, up to 24 hours back, holds no table that was full.

    ## Why it matters
    What does not fit is refused: files cannot be opened, connections are dropped, hosts do not find each other. A large
    job opens many of each at its start.

    ## What to do
    On {host}: {remedy}

    ## Source
    Messages of the kernel: fs/file_table.c "file-max limit ... reached", net/netfilter/nf_conntrack_core.c "table full,
    dropping packet", net/core/neighbour.c "neighbor table overflow", net/ipv4/tcp.c "consider tuning tcp_mem",
    net/ipv4/tcp_input.c "Possible SYN flooding on port ... Dropping request".
    """
    for fault in log.faults("kernel-table-full-logged"):
        if port := fault.groups.get("port"):
            yield Finding(
                "the queue of port {port} was full, and connections were dropped, {count} messages in 24 hours, "
                "last {age}: {text}",
                table=fault.device,
                port=port,
                **fault.values,
                remedy=REMEDIES[fault.device],
            )
            continue
        yield Finding(
            "the kernel's table {table} was full, {count} messages in 24 hours, last {age}: {text}",
            table=fault.device,
            **fault.values,
            remedy=REMEDIES[fault.device],
        )
