import pytest

from doctor import Skip
from doctor.engine.fact import Unreadable
from doctor.facts.hccn.device_addresses import DeviceAddresses
from tests.checks.device_network import HOSTS, a1, a2, fleet, moved, per, run_check

BARE = per(HOSTS, DeviceAddresses(by_npu={}, unset=tuple(range(16))))


def test_all_set() -> None:
    assert run_check("device_ip_unset", addresses=a2(), **fleet("A2")) == []
    assert run_check("device_ip_unset", addresses=a1(), **fleet("A1")) == []


def test_a2_needs_one_on_every_npu_of_two_hosts_and_more() -> None:
    addresses = moved(a2(), {("h2", 3): "", ("h2", 6): ""})
    [finding] = run_check("device_ip_unset", addresses=addresses, **fleet("A2"))
    assert finding.hosts == ("h2",)
    assert finding.values["npus"] == [3, 6]
    assert str(finding) == "no device IP on NPU 3 and 6; expected one on each of the host's 8 NPUs"


def test_a1_needs_one_even_alone() -> None:
    addresses = moved(a1(("h1",)), {("h1", 0): ""})
    [finding] = run_check("device_ip_unset", addresses=addresses, **fleet("A1", ("h1",)))
    assert finding.hosts == ("h1",)


def test_one_a2_host_needs_none() -> None:
    with pytest.raises(Skip):
        run_check("device_ip_unset", addresses=moved(a2(("h1",)), {("h1", 0): ""}), **fleet("A2", ("h1",)))


def test_a_host_that_could_not_be_read_is_still_a_second_host() -> None:
    around = fleet("A2", ("h1", "h2"))
    assert run_check("device_ip_unset", addresses=moved(a2(("h1",)), {("h1", 0): ""}), **around)


def test_one_super_pod_needs_none() -> None:
    with pytest.raises(Skip):
        run_check("device_ip_unset", addresses=BARE, **fleet("A3"))


def test_two_super_pods_do() -> None:
    findings = run_check("device_ip_unset", addresses=BARE, **fleet("A3", pods=2))
    assert [finding.hosts for finding in findings] == [(host,) for host in HOSTS]


def test_hccs_switched_off_between_hosts() -> None:
    assert run_check("device_ip_unset", addresses=BARE, **fleet("A3", HCCL_INTER_HCCS_DISABLE="true"))
    with pytest.raises(Skip):
        run_check("device_ip_unset", addresses=BARE, **fleet("A3", HCCL_INTER_HCCS_DISABLE="FALSE"))


def test_super_pods_that_are_not_known() -> None:
    with pytest.raises(Unreadable, match="super pod"):
        run_check("device_ip_unset", addresses=BARE, **{**fleet("A3"), "pods": None})
