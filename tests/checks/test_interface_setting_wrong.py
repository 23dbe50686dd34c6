import os
import re
import subprocess
from pathlib import Path

import pytest

from doctor.engine.fact import Fact
from doctor.facts.host_variables import comment_out
from doctor.job import LaunchConfig
from tests.checks.launch_lines import config
from tests.checks.network import GPUS, NPUS, alike_hosts, interfaces, link, named
from tests.checks.run_check import fleet, job, messages, run_check

NAME = "interface-setting-wrong"
HOST = interfaces(
    link("docker0", running=False), eth0="10.0.0.1/24 fe80::1/64", ib0="10.1.0.1/24", docker0="172.17.0.1/16"
)


def problems(*facts: Fact, **environ: str) -> list[str]:
    return [text for _, text in messages(run_check(NAME, fleet(2, HOST, *facts), job(**environ)))]


@pytest.mark.parametrize("value", ["eth0", "eth0,ib0", "eth0,", "lo", "x", ""])
def test_what_gloo_accepts(value: str) -> None:
    """Whether others reach it is another check's matter; a value of one letter is ignored."""
    assert problems(GLOO_SOCKET_IFNAME=value) == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("eno7", "there is no interface eno7"),
        ("eth", "there is no interface eth"),
        ("^lo,docker0", "^ is NCCL's and HCCL's notation; this library compares whole names"),
        ("=eth0", "= is NCCL's and HCCL's notation; this library compares whole names"),
        ("10.0.0.1", "it is an address, not an interface name"),
        ("eth0, ib0", "there is a space in ' ib0'"),
        ("eth0,,ib0", "there is an empty name in the list"),
    ],
)
def test_what_gloo_refuses(value: str, problem: str) -> None:
    assert problems(GLOO_SOCKET_IFNAME=value) == [f"GLOO_SOCKET_IFNAME is {value}: {problem}"]


def test_an_interface_without_an_address() -> None:
    host = interfaces(link("eth1", up=False), eth0="10.0.0.1/24")
    outcome = run_check(NAME, fleet(1, host), job(GLOO_SOCKET_IFNAME="eth1"))
    assert messages(outcome) == [("w1", "GLOO_SOCKET_IFNAME is eth1: interface eth1 has no address, and is down")]
    assert outcome.findings[0].values["expected"] == "eth0"


def test_an_alias_of_an_interface() -> None:
    from doctor.facts.interfaces import LinkAddress

    host = interfaces(eth0="10.0.0.1/24")
    host = type(host)(
        links=host.links,
        addresses=(*host.addresses, LinkAddress("eth0:1", "eth0", "10.2.0.1", 24)),
        routes=(),
        has_rules=False,
    )
    assert messages(run_check(NAME, fleet(1, host), job(GLOO_SOCKET_IFNAME="eth0:1"))) == []


def test_only_the_hosts_without_the_interface_are_named() -> None:
    hosts = {"w1": [interfaces(eth0="10.0.0.1/24")], "w2": [interfaces(enp4s0="10.0.0.2/24")]}
    outcome = run_check(NAME, hosts, job(GLOO_SOCKET_IFNAME="eth0"))
    assert [finding.hosts for finding in outcome.findings] == [("w2",)]
    assert outcome.findings[0].values["expected"] == "enp4s0"


@pytest.mark.parametrize("value", ["eth", "=eth0", "^docker,lo", "ib,eth", "e", "eth0:5000"])
def test_what_nccl_accepts(value: str) -> None:
    assert problems(GPUS, NCCL_SOCKET_IFNAME=value) == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("=eth", "interface eth0 has no address"),
        ("eno7", "no interface that is up matches it"),
        ("docker0", "interface docker0 has no carrier"),
        ("^eth,ib,lo", "it excludes every interface that is up"),
        ("10.0.0.1", "it is an address, not an interface name"),
    ],
)
def test_what_nccl_refuses(value: str, problem: str) -> None:
    assert problems(GPUS, NCCL_SOCKET_IFNAME=value) == [f"NCCL_SOCKET_IFNAME is {value}: {problem}"]


def test_nccls_family() -> None:
    only_ipv4 = interfaces(eth0="10.0.0.1/24")
    settings = job(NCCL_SOCKET_IFNAME="eth0", NCCL_SOCKET_FAMILY="AF_INET6")
    assert [text for _, text in messages(run_check(NAME, fleet(1, only_ipv4, GPUS), settings))] == [
        "NCCL_SOCKET_IFNAME is eth0: interface eth0 has no address with an IPv6 address"
    ]
    only_ipv6 = interfaces(eth0="fd00::1/64")
    assert messages(run_check(NAME, fleet(1, only_ipv6, GPUS), settings)) == []


@pytest.mark.parametrize("value", ["eth", "=eth0", "^docker", "^=lo,docker0", "=eth01"])
def test_what_hccl_accepts(value: str) -> None:
    """It compares `=eth01` with eth0 no further than eth0 is long."""
    assert problems(NPUS, HCCL_SOCKET_IFNAME=value) == []


@pytest.mark.parametrize("value", ["eno7", "=eth", "^eth,ib,lo,docker"])
def test_what_hccl_refuses(value: str) -> None:
    assert len(problems(NPUS, HCCL_SOCKET_IFNAME=value)) == 1


def test_hccl_goes_on_with_the_other_family() -> None:
    only_ipv6 = interfaces(eth0="fd00::1/64")
    assert messages(run_check(NAME, fleet(1, only_ipv6, NPUS), job(HCCL_SOCKET_IFNAME="eth0"))) == []


def test_an_address_of_no_host() -> None:
    assert problems(NPUS, HCCL_IF_IP="192.168.77.7") == [
        "HCCL_IF_IP is 192.168.77.7: no interface has the address 192.168.77.7"
    ]


def test_the_callers_own_address_is_not_held_against_the_others() -> None:
    hosts = {n: [interfaces(eth0=f"10.0.0.{n[1]}/24"), NPUS] for n in ("w1", "w2")}
    assert messages(run_check(NAME, hosts, job(HCCL_IF_IP="10.0.0.1"))) == []


def test_each_hosts_own_environment() -> None:
    own_values = {"w1": {"HCCL_IF_IP": "10.0.0.1"}, "w2": {"HCCL_IF_IP": "10.0.0.1"}}
    hosts = {n: [interfaces(eth0=f"10.0.0.{n[1]}/24"), NPUS] for n in ("w1", "w2")}
    launch = LaunchConfig.from_environment({"HCCL_IF_IP": "10.0.0.1"}, by_host=own_values)
    assert [host for host, _ in messages(run_check(NAME, hosts, launch))] == ["w2"]


@pytest.mark.parametrize("environ", [{"NCCL_SOCKET_IFNAME": "eno7"}, {"HCCL_SOCKET_IFNAME": "eno7"}])
def test_a_library_without_its_accelerator_is_not_judged(environ: dict[str, str]) -> None:
    assert problems(named("w1", "10.0.0.1"), **environ) == []


def test_tensorpipe_compares_whole_names() -> None:
    assert problems(TP_SOCKET_IFNAME="eth") == ["TP_SOCKET_IFNAME is eth: there is no interface eth"]


def test_the_address_of_a_process_of_mindspore() -> None:
    assert problems(NPUS, MS_WORKER_IP="192.168.77.7") == [
        "MS_WORKER_IP is 192.168.77.7: no interface has the address 192.168.77.7"
    ]
    hosts = alike_hosts(2)
    own_values = {"w1": {"MS_WORKER_IP": "10.0.0.1"}, "w2": {"MS_WORKER_IP": "10.0.0.1"}}
    launch = LaunchConfig.from_environment({}, by_host=own_values)
    assert [host for host, _ in messages(run_check(NAME, hosts, launch))] == ["w2"]
    assert messages(run_check(NAME, hosts, job(MS_WORKER_IP="10.0.0.1"))) == []
    assert messages(run_check("interface-doubtful", hosts, job(MS_WORKER_IP="10.0.0.1"))) == [
        ("w2", "MS_WORKER_IP is 10.0.0.1: it is the address of w1")
    ]


OPENMPI: list[tuple[str, str, set[str]]] = [
    ("btl_tcp_if_include", "eth0", set()),
    ("btl_tcp_if_include", "10.0.0.0/24", set()),
    ("btl_tcp_if_include", "eno7", {NAME}),
    ("btl_tcp_if_include", "eth0,eno7", {NAME}),
    ("oob_tcp_if_include", "eno7", {NAME}),
    ("oob_tcp_if_include", "lo", {"interface-unreachable"}),
    ("oob_tcp_if_include", "docker0", {"interface-unreachable"}),
    ("btl_tcp_if_include", "eth0,docker0", set()),
]


@pytest.mark.parametrize(("parameter", "value", "names"), OPENMPI)
def test_open_mpi_as_it_was_measured(parameter: str, value: str, names: set[str]) -> None:
    """Of its launch line alone: a job of torch may have the variable without using Open MPI."""
    hosts = {
        f"w{n}": [interfaces(eth0=f"10.0.0.{n}/24", docker0="172.17.0.1/16"), named(f"w{n}", f"10.0.0.{n}")]
        for n in (1, 2)
    }
    launch = config(f"mpirun -np 2 -H w1,w2 --mca {parameter} {value} ./program")
    assert {name for name in (NAME, "interface-unreachable") if run_check(name, hosts, launch).findings} == names
    variable = job(**{f"OMPI_MCA_{parameter}": value})
    assert not any(run_check(name, hosts, variable).findings for name in (NAME, "interface-unreachable"))


def test_what_a_start_up_file_sets_is_mended_in_the_file() -> None:
    launch = LaunchConfig(shells={"w1": {}, "w2": {"GLOO_SOCKET_IFNAME": "eth9"}})
    outcome = run_check(NAME, fleet(2, HOST), launch)
    assert messages(outcome) == [("w2", "GLOO_SOCKET_IFNAME is eth9: there is no interface eth9")]
    assert "sed -i.bak" in outcome.findings[0].values["exports"]
    named_by_caller = LaunchConfig(shells=launch.shells, env={"GLOO_SOCKET_IFNAME": "eth0"})
    assert messages(run_check(NAME, fleet(2, HOST), named_by_caller)) == []


def test_the_command_makes_the_line_a_comment(tmp_path: Path) -> None:
    (command,) = re.findall(r"`([^`]+)`", comment_out("GLOO_SOCKET_IFNAME", ["w2"]))
    kept = "export GLOO_SOCKET_IFNAME_OLD=eth9\nalias x=GLOO_SOCKET_IFNAME=1\n"
    (tmp_path / ".bashrc").write_text("export GLOO_SOCKET_IFNAME=eth9\n" + kept)
    mine = re.sub(r" /etc/[^ )]+", "", command)
    subprocess.run(["sh", "-ec", mine], env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]}, check=True)
    assert (tmp_path / ".bashrc").read_text() == "#export GLOO_SOCKET_IFNAME=eth9\n" + kept
