from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.gpu import GpuCards
from doctor.facts.kernel import ListenQueues, expected_connections
from doctor.facts.npu import NpuInventory
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig


@check(severity=WARNING, area="kernel")
def listen_queue_short(
    queues: ListenQueues,
    fleet: PerHost[Reachability],
    npus: PerHost[NpuInventory] | None,
    gpus: PerHost[GpuCards] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """The queue of a listening socket (net.core.somaxconn) holds the connections of all ranks.

    ## Why it matters
    When the job starts, all ranks connect to one host within moments. Connections beyond the queue are dropped. Some
    ranks retry late or give up, and the job fails at its start, by chance, more often the larger it is (EI0015, list
    of unconnected ranks; TCPStore time-out).

    ## What to do
    On {host}: `sysctl -w net.core.somaxconn=65535 && echo "net.core.somaxconn = 65535" >>
    /etc/sysctl.d/99-zz-cluster.conf`. It holds for programs started afterwards.

    ## In a container
    Start the container of {host} again with `docker run --sysctl net.core.somaxconn=65535`. In Kubernetes, Volcano and
    MindCluster: the same name and value under `securityContext.sysctls` of the pod, which the kubelet must allow
    (`--allowed-unsafe-sysctls`). With the host's network (`--network host`, `hostNetwork: true`) the value is that of
    the container's host, and is set there.

    ## Source
    Huawei, HCCL Test guide, "Execution": the master's concurrent connections are limited by somaxconn and
    tcp_max_syn_backlog, set them by the size of the cluster, for example to 65535. The kernel takes the smaller of
    somaxconn and what the program asks for (listen(2)); PyTorch's store asks for 16384 or for all there is, so this is
    the end that can be short. The number required is four connections a rank and at least 256. Linux has 4096 by
    default since 5.4, enough for 1024 ranks, and 128 before. A host whose devices are not known counts as 8 ranks.
    """
    ranks, required = expected_connections(launch, fleet, npus, gpus)
    if queues.somaxconn < required:
        yield Finding(
            "net.core.somaxconn is {observed}; expected at least {expected} for {ranks} ranks",
            observed=queues.somaxconn,
            expected=required,
            ranks=ranks,
        )
