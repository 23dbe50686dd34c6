from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.facts.interfaces import Interfaces
from doctor.facts.network_test import NetworkAnswer
from doctor.net.assemble import assemble_matrix
from doctor.net.findings import measured_slow_paths, require_no_doubt, slow_path_finding

ONE_HOST = "only one host: there is no other to connect to"


@check(severity=ERROR, area="network", single_host=ONE_HOST)
def net_path_slow(answers: PerHost[NetworkAnswer], interfaces: PerHost[Interfaces] | None) -> Iterator[Finding]:
    """No host, link or direction of the hosts' network is much slower than the others.

    ## Why it matters
    Data loading, checkpoints, rendezvous and every collective of Gloo go over this network. A ring is as fast as its
    slowest link.

    ## What to do
    The slow way is {place}.
    - The cause: {named} Measure again: `doctor net {all_hosts} --select net-path-slow`.
    - Search: on {ends}, each as root: `{queues}`, `{nft}` and `{iptables}` print the command that deletes each queue
      that delays or limits, and each rule that drops. `grep -s . /sys/class/net/*/speed
      /sys/class/net/*/duplex` shows a link that is slower than those of other hosts, `ip -s link` its errors,
      `tracepath -n {other}` a detour or a smaller MTU, `top -b -n 1 | head -20` other load. Where no host shows one of
      these, ask those who run the switch for the counters of its port. Measure again: `doctor net {all_hosts} --select
      net-path-slow`.

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
    A queueing discipline of one of these hosts, `netem` or `tbf`, is named where it does what the figure shows and
    not every host has one like it (RTM_GETQDISC).
    """
    slow = measured_slow_paths(answers)
    if len(assemble_matrix(answers).hosts) < 3:
        raise Skip("the way between two hosts has no other to compare with")
    for path in slow:
        if path.figure != "retransmissions":  # net-packets-lost reports them, and what follows from them
            yield slow_path_finding(
                path,
                answers,
                "the {figure} {place} is {ratio} times worse than elsewhere: {value}, {norm} (confidence "
                "{confidence}, {measured} measurements){because}",
                interfaces or {},
            )
    require_no_doubt(answers, of_losses=False)
