from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.network_test import NetworkAnswer
from doctor.net.findings import is_of_rank_0_alone, located_failures

ONE_HOST = "only one host: there is no other to connect to"
READ_ON_HOSTS: dict[str, tuple[str, ...]] = {"hccl-port-taken": (), "master-port-taken": ()}
CAUSES = {"default-port-taken": ("taken=port",)}


@check(severity=ERROR, area="network", single_host=ONE_HOST, follows_from=CAUSES, explained_by=READ_ON_HOSTS)
def net_port_unavailable(answers: PerHost[NetworkAnswer]) -> Iterator[Finding]:
    """Every host can listen on the ports that the job will use.

    ## Why it matters
    A port that another process holds ends the job at its start: "Address already in use", EI0019. Often it is what
    remained of the last job.

    ## What to do
    {look} Only the host of rank 0 needs MASTER_PORT: without MASTER_ADDR it is tried on every host, and where another
    can listen, the finding is a warning. The port that fails: {port}.

    ## Source
    The network test binds each port at the address that the job will use, in the network namespace of the job; the
    kernel refused it. The process is named as far as it can be seen: without root, those of other users cannot. A port
    below 1024 is not bound: of a user who may not (ip_unprivileged_port_start, CAP_NET_BIND_SERVICE) it is refused, and
    of others it is not tried.
    """
    for failure in located_failures(answers, "unavailable"):
        yield Finding(
            "it cannot listen on {ports}: {how}",
            hosts=failure.hosts,
            observed=", ".join(failure.details) or "bound",
            expected="free",
            taken=list(failure.numbers),
            **failure.values,
        ).as_warning(is_of_rank_0_alone(failure, answers))
