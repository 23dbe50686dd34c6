import pytest

from doctor import Skip
from tests.checks.device_network import a2, moved, run_check


def test_one_family() -> None:
    assert run_check("device_ip_families_mixed", addresses=a2()) == []


def test_the_minority_is_named() -> None:
    [finding] = run_check("device_ip_families_mixed", addresses=moved(a2(), {("h3", 5): "2001:db8::5/64"}))
    assert finding.hosts == ("h3",)
    assert str(finding) == "IPv6 address on NPU 5; 31 of 32 NPUs have IPv4"


def test_a_tie_blames_both() -> None:
    addresses = moved(a2(("h1", "h2"), 1), {("h1", 0): "2001:db8::5/64"})
    [finding] = run_check("device_ip_families_mixed", addresses=addresses)
    assert finding.hosts == ("h1", "h2")
    assert finding.values["groups"] == {"IPv4": "NPU 0 of h2", "IPv6": "NPU 0 of h1"}


def test_one_npu_alone() -> None:
    with pytest.raises(Skip):
        run_check("device_ip_families_mixed", addresses=a2(("h1",), 1))
