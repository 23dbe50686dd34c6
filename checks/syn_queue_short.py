from collections.abc import Iterator
from math import ceil

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.gpu import GpuCards
from doctor.facts.kernel import ListenQueues, expected_connections
from doctor.facts.npu import NpuInventory
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig


@check(severity=WARNING, area="kernel")
def syn_queue_short(
    queues: ListenQueues,
    fleet: PerHost[Reachability],
    npus: PerHost[NpuInventory] | None,
    gpus: PerHost[GpuCards] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """The queue of half-open connections (net.ipv4.tcp_max_syn_backlog) holds those of all ranks.

    ## Why it matters
    Besides the queue of accepted connections (listen-queue-short) there is one for handshakes under way. Where it is
    full the first packet of a connection is dropped and sent again after 1, 3, 7 seconds: ranks arrive late, or never.

    ## What to do
    On {host}: `sysctl -w net.ipv4.tcp_max_syn_backlog=65535 && echo "net.ipv4.tcp_max_syn_backlog = 65535" >>
    /etc/sysctl.d/99-zz-cluster.conf`.

    ## In a container
    Start the container of {host} again with `docker run --sysctl net.ipv4.tcp_max_syn_backlog=65535`. In Kubernetes,
    Volcano and MindCluster: the same name and value under `securityContext.sysctls` of the pod, which the kubelet must
    allow (`--allowed-unsafe-sysctls`). With the host's network (`--network host`, `hostNetwork: true`) the value is
    that of the container's host, and is set there.

    ## Source
    Huawei, HCCL Test guide, "Execution": raise both somaxconn and tcp_max_syn_backlog with the size of the cluster,
    for example to 65535. The number required is that of listen-queue-short. With tcp_syncookies=0 the kernel keeps the
    last quarter of the queue for peers that it knows (`tcp_conn_request` in tcp_input.c), so a third more is required.
    With syncookies the kernel does not drop, yet before Linux 4.4 it answers with cookies, which lose TCP options.
    """
    ranks, required = expected_connections(launch, fleet, npus, gpus)
    if not queues.syncookies:
        required = ceil(required * 4 / 3)
    if queues.syn_backlog < required:
        yield Finding(
            "net.ipv4.tcp_max_syn_backlog is {observed}; expected at least {expected} for {ranks} ranks",
            observed=queues.syn_backlog,
            expected=required,
            ranks=ranks,
            syncookies=queues.syncookies,
        )
