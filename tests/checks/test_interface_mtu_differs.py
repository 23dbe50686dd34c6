from doctor.engine.fact import Fact
from tests.checks.network import interfaces, link
from tests.checks.run_check import messages, run_check, skipped

NAME = "interface-mtu-differs"


def hosts(*mtus: int, network: str = "10.0.0.{n}/24") -> dict[str, list[Fact]]:
    return {f"w{n}": [interfaces(link("eth0", mtu=mtu), eth0=network.format(n=n))] for n, mtu in enumerate(mtus, 1)}


def test_one_mtu() -> None:
    assert messages(run_check(NAME, hosts(9000, 9000, 9000))) == []


def test_one_host_with_another() -> None:
    assert messages(run_check(NAME, hosts(1500, 1500, 9000))) == [
        ("w3", "eth0 has an MTU of 9000 bytes; 2 of 3 hosts in 10.0.0.0/24 have 1500")
    ]


def test_two_halves() -> None:
    (finding,) = run_check(NAME, hosts(1500, 9000)).findings
    assert finding.hosts == ("w1", "w2")
    assert finding.values["mtu"] is None
    (finding,) = run_check(NAME, hosts(1500, 1500, 9000)).findings
    assert (finding.values["device"], finding.values["mtu"]) == ("eth0", 1500)


def test_networks_are_not_compared_with_each_other() -> None:
    assert messages(run_check(NAME, hosts(1500, 9000, 1500, network="10.0.{n}.1/24"))) == []


def test_loopback_and_container_bridges_are_left_out() -> None:
    fleet: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(link("docker0", mtu=1400 + n, kind="bridge"), docker0="172.17.0.1/16")] for n in (1, 2)
    }
    assert messages(run_check(NAME, fleet)) == []


def test_ipv6() -> None:
    assert len(messages(run_check(NAME, hosts(1500, 1500, 9000, network="fd00::{n}/64")))) == 1


def test_one_host_alone() -> None:
    assert skipped(run_check(NAME, hosts(9000))) == {"only one host: nothing to compare"}
