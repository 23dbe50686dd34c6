from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.gpu import GpuCards
from doctor.facts.host_variables import comment_out
from doctor.facts.interfaces import Interfaces, export_commands
from doctor.facts.npu import NpuInventory
from doctor.facts.socket_peers import FleetSockets
from doctor.job import LaunchConfig
from doctor.job.variables import ADDRESSES, TENSORPIPE_INTERFACE


@check(severity=ERROR, area="connectivity")
def interface_setting_wrong(
    interfaces: PerHost[Interfaces],
    npus: PerHost[NpuInventory] | None,
    gpus: PerHost[GpuCards] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """Every communication library finds, on each host, the network interface that its variable names.

    ## Why it matters
    A library that finds no such interface ends at once: Gloo with "Unable to find address for", NCCL with "no socket
    interface found", HCCL with EI0001. The ranks of all other hosts wait for it until their timeout. Interface
    names differ between hosts more often than one expects: eth0 here, enp4s0 there. Gloo and TensorPipe compare whole
    names, separated by commas; NCCL and HCCL compare the beginning of a name, `=eth0` stands for exactly this name,
    `^docker,lo` for all others.

    ## What to do
    {exports}
    `ip -br address` lists the interfaces of a host and their addresses.

    ## Source
    PyTorch, `torch/csrc/distributed/c10d/init.cpp` (GLOO_SOCKET_IFNAME) and Gloo, `transport/tcp/device.cc`; NCCL
    documentation, NCCL_SOCKET_IFNAME, and `misc/socket.cc`; HCCL documentation, HCCL_IF_IP, HCCL_SOCKET_IFNAME and
    HCCL_SOCKET_FAMILY; MindSpore documentation, dynamic cluster (MS_WORKER_IP); Open MPI 4.1, measured:
    btl_tcp_if_include and oob_tcp_if_include, judged where the launch line is that of mpirun. A library whose
    accelerator no host has is not judged; TP_SOCKET_IFNAME is a warning, since only torch's RPC reads it. This verdict
    can be wrong where a launch script sets another value on each host; `doctor node` and `doctor merge` read each
    host's own environment.
    """
    fleet = FleetSockets(interfaces, {}, launch, npus or {}, gpus or {})
    hosts_by_fault: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    expected: dict[tuple[str, str, str], str] = {}
    for choices in fleet.choices:
        for host, choice in choices.items():
            if choice.problem:
                name = choice.variable or choice.library
                key = (name, choice.value or "not set", choice.problem)
                hosts_by_fault[key].append(host)
                expected.setdefault(key, choice.expected)
    for key, hosts in hosts_by_fault.items():
        variable, value, problem = key
        by_shell = [host for host in hosts if launch.set_by_shell(host).get(variable) == value]
        finding = Finding(
            "{variable} is {value}: {problem}",
            hosts=list(dict.fromkeys(hosts)),
            variable=variable,
            value=value,
            problem=problem,
            observed=value,
            expected="an address of the host itself" if variable in ADDRESSES else expected[key],
            exports=comment_out(variable, by_shell)
            if by_shell
            else export_commands(variable, {host: interfaces[host] for host in hosts}),
        )
        yield finding.as_warning(variable == TENSORPIPE_INTERFACE)
