from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.facts.gpu import GpuCards
from doctor.facts.interfaces import Interfaces, export_commands, only_usable, prefix_remedy, usable_addresses
from doctor.facts.names import HostNames
from doctor.facts.npu import NpuInventory
from doctor.facts.socket_choice import SocketChoice
from doctor.facts.socket_peers import decided_by_rank_table, fleet_sockets, unreachable
from doctor.job import LaunchConfig
from doctor.job.variables import ADDRESSES

CAUSES = {
    "duplicate-address": ("address",),
    "host-name-is-loopback": ("address",),
    "host-name-is-localhost": ("address",),
    "host-name-unresolved": ("address=taken",),
}
SHARED_ADDRESS = {"net-answered-by-other": ("fault=shared",)}
"""Of two hosts with one address that check's trial names both."""
BY_NAME = (
    "The library has followed the host's own name: give the name its real address in /etc/hosts instead, as "
    "`doctor explain host-name-is-loopback` says."
)
ONE_HOST = "only one host: any address of its own will do"


@check(severity=ERROR, area="connectivity", single_host=ONE_HOST, follows_from=CAUSES, explained_by=SHARED_ADDRESS)
def interface_unreachable(
    interfaces: PerHost[Interfaces],
    names: PerHost[HostNames],
    npus: PerHost[NpuInventory] | None,
    gpus: PerHost[GpuCards] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """The other hosts can connect to the address that each communication library takes on a host.

    ## Why it matters
    Every rank announces the address of the interface that its library has taken. Where that is loopback, or the
    docker0 that all hosts have with one address, the others connect to themselves. They report "Connection
    refused, remote=[172.17.0.1]", or the job waits at its start until a timeout of minutes.

    ## What to do
    - Route: {prefix}
    - Address: {exports}
    - Interface: In the job's script, so that all hosts have it: `export {setting}={nic}`, the interface that leads to
      the other hosts (on {host}: {expected}). {by_name}

    ## In a container
    The container of {host} has interfaces of its own. Start it again with the machine's, `docker run --network host`, a
    pod with `hostNetwork: true`; or name the interface of its own that the others reach: `export {setting}={nic}`, here
    {expected}.

    ## Source
    PyTorch, `ProcessGroupGloo.cpp` (without GLOO_SOCKET_IFNAME: the address of the own host name, else 127.0.0.1); NCCL
    documentation, NCCL_SOCKET_IFNAME (without it: ib, then others, then docker, then lo); HCCL documentation,
    HCCL_SOCKET_IFNAME (without it: the first by name, docker and lo last). Measured with PyTorch 2.13: of two ranks the
    one with the greater address connects, so that one host's loopback address does no harm among hosts of 10.0.0.0/8,
    and stops a job on 192.168.0.0/16; that is how this check judges Gloo. Gloo's own rule is judged on hosts without
    accelerators, that of NCCL and HCCL on hosts with theirs; TensorPipe's address is a warning, since only torch's RPC
    takes it, and a job of Open MPI without MASTER_ADDR or a variable of Gloo is not judged by Gloo's rule. Of
    oob_tcp_if_include the host of mpirun is judged, taken for the first one, since the daemons of all others connect
    to it (Open MPI 4.1, `orte/mca/oob/tcp`; PRRTE, `src/rml/oob`); where only others have a fault it is unknown, since
    Open MPI 5 alone minds it. This verdict can be wrong where a launch script sets the variables anew, or where policy
    routing (`ip rule`) leads to the other hosts; with such rules it is unknown, and so is an address off its host's
    default route that other hosts reach by theirs: their router decides.
    """
    if len(interfaces) < 2:
        raise Skip(ONE_HOST)
    fleet = fleet_sockets(interfaces, names, launch, npus, gpus)
    for number, choices in enumerate(fleet.choices):
        judged = {host: one for host, one in choices.items() if not decided_by_rank_table(one, launch)}
        faults: dict[tuple[SocketChoice, str, str], list[str]] = defaultdict(list)
        for fault in unreachable(judged, interfaces) if judged != choices else fleet.unreachable(number):
            faults[fault.choice, fault.reason, fault.kind].append(fault.host)
        for (choice, reason, fault_kind), hosts in faults.items():
            prefix = prefix_remedy(hosts[0], interfaces) if fault_kind == "route" else ""
            finding = Finding(
                "{library} uses {address} ({interface}), chosen by {source}: {reason}",
                hosts=hosts,
                library=choice.library,
                setting=choice.setting,
                address=choice.address,
                interface=choice.interface,
                source=choice.source,
                reason=reason,
                fault=fault_kind,
                prefix=prefix,
                case="Route" if prefix else "Address" if choice.variable in ADDRESSES else "Interface",
                exports=export_commands(choice.variable, interfaces),
                by_name=BY_NAME if choice.library == "Gloo" and not choice.variable else "",
                observed=choice.address,
                expected=usable_addresses(interfaces[hosts[0]], choice.address),
                nic=only.label if (only := only_usable(interfaces[hosts[0]], choice.address)) else None,
            )
            yield finding.as_warning(choice.is_of_rpc)
