from collections.abc import Iterable, Iterator

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.facts.rdma import RdmaPorts, chosen_ports
from doctor.job import LaunchConfig


@check(severity=ERROR, area="links")
def nccl_ib_hca_missing(adapters: PerHost[RdmaPorts], launch: LaunchConfig) -> Iterator[Finding]:
    """Every RDMA adapter that NCCL_IB_HCA names exists on every host.

    ## Why it matters
    NCCL leaves out what it does not find. The ranks of that host then have fewer rails, or none at all: they fall back
    to TCP, while the ranks of the other hosts wait for them on RDMA.

    ## What to do
    `ls /sys/class/infiniband` on {host} lists its adapters: {available}. If {missing} is wrong, name in the job's
    script adapters that every host has: `export NCCL_IB_HCA={common}`. If it should be there, `lspci | grep -iE
    'infiniband|mellanox'` and `dmesg | grep -iE 'mlx5|infiniband'` have the reason why it is not.

    ## Source
    NCCL User Guide, NCCL_IB_HCA: a list of prefixes; with = of exact names, each with an optional port; with ^ of those
    to leave out. Names that are left out need not exist.
    """
    settings = {host: launch.environ_of(host).get("NCCL_IB_HCA", "") for host in adapters}
    if not any(settings.values()):
        raise Skip("NCCL_IB_HCA is not set")
    chosen = [_devices(chosen_ports(settings[host], own.ports)[0]) for host, own in adapters.items()]
    everywhere = set.intersection(*chosen) or set.intersection(*(_devices(own.ports) for own in adapters.values()))
    shared = {"common": "=" + ",".join(sorted(everywhere))} if everywhere else {}
    for host, own in adapters.items():
        if not settings[host] or launch.environ_of(host).get("NCCL_IB_DISABLE") == "1":
            continue
        missing = chosen_ports(settings[host], own.ports)[1]
        if missing:
            yield Finding(
                "NCCL_IB_HCA names {missing}, which the host does not have",
                hosts=[host],
                missing=list(missing),
                available=[device.name for device in own.devices],
                setting=settings[host],
                **shared,
            )


def _devices(ports: Iterable[str]) -> set[str]:
    return {port.partition(":")[0] for port in ports}
