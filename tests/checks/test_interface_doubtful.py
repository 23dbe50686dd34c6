import pytest

from doctor.engine.fact import Fact
from doctor.facts.limits import RdmaAdapters
from tests.checks.launch_lines import config
from tests.checks.network import GPUS, NPUS, alike_hosts, interfaces, link, named
from tests.checks.run_check import job, messages, run_check, skipped

NAME = "interface-doubtful"


def bridged(bridge: str = "docker0") -> dict[str, list[Fact]]:
    """Hosts whose container bridges have networks of their own, with a default route."""
    return {
        f"w{n}": [
            interfaces(
                link(bridge, kind="bridge"),
                routes=("0.0.0.0/0",),
                **{"eth0": f"10.0.0.{n}/24", bridge: f"172.2{n}.0.1/16"},
            ),
            named(f"w{n}", f"10.0.0.{n}"),
            NPUS,
        ]
        for n in (1, 2)
    }


def test_no_container_interface_is_taken() -> None:
    assert messages(run_check(NAME, alike_hosts(2))) == []
    assert messages(run_check(NAME, bridged())) == []  # docker comes after eth0


@pytest.mark.parametrize("bridge", ["docker0", "br-0a1b", "virbr0"])
def test_a_container_bridge_by_variable(bridge: str) -> None:
    outcome = run_check(NAME, bridged(bridge), job(GLOO_SOCKET_IFNAME=bridge))
    first = [finding for finding in outcome.findings if finding.values["setting"] == "GLOO_SOCKET_IFNAME"]
    assert [finding.hosts for finding in first] == [("w1", "w2")]
    assert first[0].values["exports"] == (
        "Where the ranks of these hosts are started, as in the job's script: `export GLOO_SOCKET_IFNAME=eth0`."
    )


def test_a_container_bridge_by_hccls_default() -> None:
    """cni0 stands before eth0."""
    assert [text for _, text in messages(run_check(NAME, bridged("cni0")))] == [
        "HCCL uses cni0, chosen by HCCL's default: it leads only to the host's own containers"
    ]


def test_an_error_is_not_reported_twice() -> None:
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(eth0=f"10.0.0.{n}/24", docker0="172.17.0.1/16"), named(f"w{n}", f"10.0.0.{n}")]
        for n in (1, 2)
    }
    assert messages(run_check(NAME, hosts, job(GLOO_SOCKET_IFNAME="docker0"))) == []


def test_the_address_of_one_host_for_all() -> None:
    outcome = run_check(NAME, bridged(), job(HCCL_IF_IP="10.0.0.1"))
    assert messages(outcome) == [("w2", "HCCL_IF_IP is 10.0.0.1: it is the address of w1")]
    assert outcome.findings[0].values["exports"] == (
        "On w1: `export HCCL_IF_IP=10.0.0.1`. On w2: `export HCCL_IF_IP=10.0.0.2`."
    )


@pytest.mark.parametrize(
    ("variable", "value", "count"),
    [
        ("UCX_NET_DEVICES", "eth0,eno7", 1),
        ("UCX_NET_DEVICES", "mlx5_0:1,all", 0),
        ("OMPI_MCA_btl_tcp_if_include", "eno7", 1),
        ("OMPI_MCA_btl_tcp_if_include", "10.0.0.0/24", 0),
        ("OMPI_MCA_oob_tcp_if_include", "eth0", 0),
    ],
)
def test_mpi_and_ucx(variable: str, value: str, count: int) -> None:
    outcome = run_check(NAME, alike_hosts(2), job(**{variable: value}))
    assert [text for _, text in messages(outcome)] == [f"{variable} names eno7: there is no such interface"][:count]


def test_ordinary_interfaces_of_gpus() -> None:
    hosts = {name: [*facts, GPUS] for name, facts in alike_hosts(2).items()}
    assert messages(run_check(NAME, hosts)) == []


def test_one_host_alone() -> None:
    assert skipped(run_check(NAME, alike_hosts(1))) == {"only one host: any interface of its own will do"}


def with_docker() -> dict[str, list[Fact]]:
    """Hosts that all have docker0 with one address."""
    return {
        f"w{n}": [interfaces(eth0=f"10.0.0.{n}/24", docker0="172.17.0.1/16"), named(f"w{n}", f"10.0.0.{n}")]
        for n in (1, 2)
    }


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--mca btl_tcp_if_exclude lo",
        "--mca btl_tcp_if_exclude 10.1.0.0/16,bad/99,sppp,l",
        "--mca btl tcp,self",
        "--mca btl ^vader",
        "--mca pml ob1",
    ],
)
def test_open_mpi_uses_an_address_that_all_hosts_have(options: str) -> None:
    launch = config(f"mpirun -np 2 -H w1,w2 {options} ./program")
    outcome = run_check(NAME, with_docker(), launch)
    reason = "several hosts have the address 172.17.0.1; a program that sends by MPI hangs or ends"
    assert messages(outcome) == [("w1 w2", f"Open MPI sends over docker0: {reason}")]
    assert outcome.findings[0].values["setting"] == "OMPI_MCA_btl_tcp_if_include"


@pytest.mark.parametrize(
    "line",
    [
        "mpirun -np 2 -H w1,w2 --mca btl_tcp_if_include eth0 ./program",
        "mpirun -np 2 -H w1,w2 --mca btl_tcp_if_exclude lo,docker0 ./program",
        "mpirun -np 2 -H w1,w2 --mca btl_tcp_if_exclude 127.0.0.1/8,172.17.0.0/16 ./program",
        "mpirun -np 2 -H w1,w2 --mca btl ^tcp ./program",
        "mpirun -np 2 -H w1,w2 --mca btl self,vader ./program",
        "mpirun -np 2 -H w1,w2 --mca pml ucx ./program",
        "mpirun -np 2 -H w1,w2 -x MASTER_ADDR=w1 python train.py",
        "torchrun --nnodes 2 --master-addr w1 train.py",
    ],
)
def test_open_mpi_does_not_use_it(line: str) -> None:
    assert messages(run_check(NAME, with_docker(), config(line))) == []


def test_addresses_of_their_own_are_no_fault_of_open_mpi() -> None:
    assert messages(run_check(NAME, bridged(), config("mpirun -np 2 -H w1,w2 ./program"))) == []


def test_open_mpi_pairs_interfaces_that_have_no_route() -> None:
    """Of two hosts with one more network each: measured with 4.1, "Network is unreachable"."""
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(eth0=f"10.0.0.{n}/24", eno7=f"10.{n}.0.1/24"), named(f"w{n}", f"10.0.0.{n}")]
        for n in (1, 2)
    }
    launch = config("mpirun -np 2 -H w1,w2 ./program")
    first = "it is paired with eno7 of w2, whose 10.2.0.1 no route leads to; a program that sends by MPI hangs or ends"
    assert messages(run_check(NAME, hosts, launch))[0] == ("w1", f"Open MPI sends over eno7: {first}")
    hosts["w2"] = [interfaces(eth0="10.0.0.2/24"), named("w2", "10.0.0.2")]
    assert messages(run_check(NAME, hosts, launch)) == []


def test_open_mpi_uses_an_interface_without_a_carrier() -> None:
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(link("ib0", running=False), ib0=f"10.1.0.{n}/24"), named(f"w{n}", f"10.0.0.{n}")]
        for n in (1, 2)
    }
    fact = messages(run_check(NAME, hosts, config("mpirun -np 2 -H w1,w2 ./program")))
    reason = "it has no carrier; a program that sends by MPI hangs or ends"
    assert fact == [("w1 w2", f"Open MPI sends over ib0: {reason}")]


def several(*down: str, docker: bool = False, rdma: bool = False, addressless: str = "") -> dict[str, list[Fact]]:
    """Hosts with GPUs and three cards; of w2 some are ``down``."""
    hosts: dict[str, list[Fact]] = {}
    for n in (1, 2, 3):
        addresses = {f"eth{card}": f"10.{card}.0.{n}/24" for card in range(3)}
        links = []
        for name in (*down, addressless) if n == 2 else ():
            if name:
                addresses.pop(name)
                links.append(link(name, up=name == addressless))
        if docker:
            addresses["docker0"] = f"172.2{n}.0.1/16"
            links.append(link("docker0", kind="bridge"))
        own = interfaces(*links, routes=("0.0.0.0/0",), **addresses)
        hosts[f"w{n}"] = [
            own,
            named(f"w{n}", f"10.0.0.{n}"),
            GPUS,
            *([RdmaAdapters(names=("mlx5_0",))] if rdma else []),
        ]
    return hosts


def test_all_interfaces_of_a_prefix() -> None:
    assert messages(run_check(NAME, several(), job(NCCL_SOCKET_IFNAME="eth"))) == []
    assert messages(run_check(NAME, several("eth2"), job(NCCL_SOCKET_IFNAME="=eth0,eth1"))) == []
    assert messages(run_check(NAME, several("eth2"), job())) == []


@pytest.mark.parametrize(
    ("hosts", "value", "text"),
    [
        (several("eth2"), "eth", "NCCL uses eth2, chosen by NCCL_SOCKET_IFNAME=eth: interface eth2 is down here"),
        (several(addressless="eth1"), "eth", "interface eth1 has no address here, and other hosts send over it"),
    ],
)
def test_an_interface_of_a_prefix_that_is_down_on_one_host(hosts: dict[str, list[Fact]], value: str, text: str) -> None:
    ((host, message),) = messages(run_check(NAME, hosts, job(NCCL_SOCKET_IFNAME=value)))
    assert host == "w2" and text in message


def test_docker0_among_the_interfaces_that_are_not_excluded() -> None:
    ((host, message),) = messages(run_check(NAME, several(docker=True), job(NCCL_SOCKET_IFNAME="^lo")))
    assert host == "w1 w2 w3" and message.startswith("NCCL uses docker0, chosen by NCCL_SOCKET_IFNAME=^lo")


def test_with_rdma_the_further_interfaces_carry_nothing() -> None:
    assert messages(run_check(NAME, several("eth2", rdma=True), job(NCCL_SOCKET_IFNAME="eth"))) == []
    without = job(NCCL_SOCKET_IFNAME="eth", NCCL_IB_DISABLE="1")
    assert len(messages(run_check(NAME, several("eth2", rdma=True), without))) == 1
