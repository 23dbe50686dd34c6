from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.rdma import RdmaPorts, chosen_ports
from doctor.facts.rdma_modules import RdmaModules
from doctor.job import LaunchConfig

REASON = ("modules",)


@check(severity=WARNING, area="links", advisory=REASON)
def rdma_port_down(
    adapters: PerHost[RdmaPorts], modules: PerHost[RdmaModules] | None, launch: LaunchConfig
) -> Iterator[Finding]:
    """Every RDMA port that the job uses is active.

    ## Why it matters
    A port that is down is left out by NCCL. The host has fewer rails than the others, so that the job is slower, or
    ranks find no partner on the same rail.

    ## What to do
    On {host}: `ibstat` or `rdma link show`.
    - Polling: there is no signal. Check the cable, the transceiver and the switch port.
    - Disabled: it is switched off on the host: `ip link set dev $(ls /sys/class/infiniband/{adapter}/device/net) up`.
    - LinkUp: there is a link, but no subnet manager has configured the port: `sminfo` shows whether one runs.

    ## Source
    `state` and `phys_state` of /sys/class/infiniband/NAME/ports (Linux ABI, sysfs-class-infiniband); the reason is that
    of `mlxlink -m -c`, where it gives one. A port counts when
    NCCL_IB_HCA names it exactly, when it has a link, or had one since its driver started (a subnet manager gave it a
    `lid`), when it is active on most hosts, when it is the only inactive
    one of eight or more adapters of one board, each with one port, or one of two of eight; others are unused. That can
    be wrong where two of eight were never cabled. A virtual function (SR-IOV) shows the link of its card, and is unused
    where the host has the card itself (Mellanox/k8s-rdma-sriov-dev-plugin issue 26); in a pod that has nothing else it
    counts.
    """
    for host, own in adapters.items():
        setting = launch.environ_of(host).get("NCCL_IB_HCA", "")
        named = chosen_ports(setting, own.ports)[0] if setting.lstrip().startswith("=") else ()
        virtual = {device.name for device in own.devices if device.virtual}
        unused = virtual if len(virtual) < len(own.devices) else set()
        for name, port in own.ports.items():
            if port.is_active:
                continue
            adapter = name.partition(":")[0]
            has_own_link = (port.has_link or port.was_configured) and adapter not in unused
            others = [
                other.ports[name].is_active for peer, other in adapters.items() if peer != host and name in other.ports
            ]
            usual = len(others) > 1 and sum(others) > len(others) / 2
            if has_own_link or name in named or usual or adapter in own.missing_rails:
                module = modules[host].by_device.get(adapter) if modules and host in modules else None
                advice = module.advice if module else ""
                yield Finding(
                    "the RDMA port {port} is {observed} ({physical}); expected {expected}; mlxlink: {advice}"
                    if advice
                    else "the RDMA port {port} is {observed} ({physical}); expected {expected}",
                    hosts=[host],
                    **({"advice": advice} if advice else {}),
                    port=name,
                    adapter=adapter,
                    observed=port.state.partition(": ")[2] or port.state or "in an unknown state",
                    physical=port.physical.partition(": ")[2] or port.physical or "no physical state",
                    case=port.physical.partition(": ")[2],
                    expected="ACTIVE",
                )
