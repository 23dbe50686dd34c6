from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.network_test import NetworkAnswer
from doctor.net.findings import measured_slow_paths, slow_path_finding

ONE_HOST = "only one host: there is no other to connect to"


@check(severity=ERROR, area="network", single_host=ONE_HOST)
def net_path_slow(answers: PerHost[NetworkAnswer]) -> Iterator[Finding]:
    """No host, link or direction of the hosts' network is much slower than the others.

    ## Why it matters
    Data loading, checkpoints, rendezvous and every collective of Gloo go over this network. A ring is as fast as its
    slowest link.

    ## What to do
    Compare with a fast pair: `grep -s . /sys/class/net/*/speed /sys/class/net/*/duplex`, `tracepath -n {other}` from
    {first} (a detour, a smaller MTU), the error counters of the interfaces and switch ports, other load on the host.
    The slow way is {place}. Measure again: `doctor net --select net-path-slow`.

    ## Source
    Each pair measures alone, in both directions: 200 round trips of one byte, one stream, four streams. The kernel of
    the target stamps packets when they arrive (SO_TIMESTAMPNS): the arrival rate is that at which they do while they
    do, and a busy host does not change it, nor the quickest round trip. Throughput and usual latency count only where
    the programs of both ends did not wait for a CPU. What looks slow is measured again, by turns with paths that do
    not, while all others are idle. A host or path is named that is slower each time, with a chance below one in 1000
    that a healthy fleet shows such anywhere (an exponential tail of the noise, 5 % of single measurements disturbed,
    Bonferroni's correction), by a ratio that matters: for data, 1.15 times (a host) or 1.5 times (a link), as in
    `smoke-host-slow` and `smoke-link-slow`; for latency, which grows with the distance, 1.5 or 2 times. It is an error
    from an arrival rate of a quarter of the others' on, where a job that spends a third of its time in communication
    takes twice as long, and where the latency adds 0.1 s or more to a collective of 2 log2(hosts) messages, one after
    another; else, and by the two figures that a busy host changes, a warning. Not measured while a job runs.
    """
    paths = measured_slow_paths(answers)
    lossy = [set(path.hosts) for path in paths if path.figure == "retransmissions"]  # net-packets-lost reports them
    for path in paths:
        if path.figure != "retransmissions" and not any(hosts <= set(path.hosts) for hosts in lossy):
            yield slow_path_finding(
                path,
                answers,
                "the {figure} {place} is {ratio} times worse than elsewhere: {value} against {norm} (confidence "
                "{confidence}, {measured} measurements)",
            )
