from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.network_test import NetworkAnswer
from doctor.net.findings import located_failures

ONE_HOST = "only one host: there is no other to connect to"
READ_ON_HOSTS: dict[str, tuple[str, ...]] = {
    "firewall-blocks-job": (),
    "interface-unreachable": (),
    "device-ip-conflict": (),
}


@check(severity=ERROR, area="network", single_host=ONE_HOST, explained_by=READ_ON_HOSTS)
def net_unreachable(answers: PerHost[NetworkAnswer]) -> Iterator[Finding]:
    """Every host reaches every other host that it tried.

    ## Why it matters
    Ranks connect in both directions between many pairs of hosts. Where one host, link or direction drops packets, the
    job waits at its start for minutes, and its messages name the ranks that waited.

    ## What to do
    {look} The hosts' own firewalls: `doctor check {all_hosts} --select firewall-blocks-job` names each rule that
    blocks.

    ## Source
    Each host listens for some seconds on the ports that the job will use, at the address that its library takes, and
    the others connect; both ends prove that they belong to the run. What fails is tried again. The host, link,
    direction or group that is named is the fewest that explain all failed attempts. It can be wrong where hosts were
    so busy that they did not answer twice within 3.5 s. A host tries itself as well where its ranks do: at MASTER_PORT
    on the host of MASTER_ADDR, and at ports that the kernel gives where more than one rank is on it.
    """
    for failure in located_failures(answers, "path"):
        yield Finding(
            "connections {place} fail on all ports tried: {failed} of {attempts} attempts ({how}){doubt}",
            hosts=failure.hosts,
            observed=", ".join(failure.outcomes),
            expected="open",
            **failure.values,
        )
