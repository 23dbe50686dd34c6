from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.network_test import NetworkAnswer
from doctor.net.findings import located_failures

ONE_HOST = "only one host: there is no other to connect to"
READ_ON_HOSTS: dict[str, tuple[str, ...]] = {"firewall-blocks-job": ()}


@check(severity=ERROR, area="network", single_host=ONE_HOST, explained_by=READ_ON_HOSTS)
def net_port_blocked(answers: PerHost[NetworkAnswer]) -> Iterator[Finding]:
    """The job's ports are open wherever hosts reach each other.

    ## Why it matters
    Packets pass, but not on these ports: the rendezvous works and the first collective hangs, or the other way round.
    The message is a timeout, and names no port.

    ## What to do
    First `doctor check {all_hosts} --select firewall-blocks-job`: it names the rule, and prints the command that opens
    the ports to these hosts alone. Where it finds none, as root on {blamed}: `nft -a list ruleset | grep -E
    'table|chain|drop|reject'` prints the rules that block, with their numbers (handles); delete the one of the port:
    `nft delete rule <family> <table> <chain> handle <number>`. A rule of iptables: `iptables-save | grep -iE
    'drop|reject'`, then `iptables -D <rule>` with what follows `-A` in its line. Where the hosts have no such rule: the
    security group of the cloud, the firewall between the racks; in Kubernetes `kubectl get networkpolicy` in the
    namespace of the pods.

    ## Source
    Each host listens for some seconds on the ports that the job will use, and the others connect: MASTER_PORT, HCCL's
    host ports where there are NPUs, and one port that the kernel gives, as Gloo and NCCL take them. Other ports of the
    same pair of hosts worked in the same test. What fails is tried again.
    """
    for failure in located_failures(answers, "port"):
        yield Finding(
            "connections {place} fail on {ports}, and pass on others: {failed} of {attempts} attempts ({how}){doubt}",
            hosts=failure.hosts,
            observed=", ".join(failure.outcomes),
            expected="open",
            **failure.values,
        )
