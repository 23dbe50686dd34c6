import pytest

from doctor import Skip
from tests.checks.device_network import a2, judged, moved


def test_one_family() -> None:
    assert judged("device_ip_families_mixed", addresses=a2()) == []


def test_the_minority_is_named() -> None:
    [one] = judged("device_ip_families_mixed", addresses=moved(a2(), {("h3", 5): "2001:db8::5/64"}))
    assert one.hosts == ("h3",)
    assert str(one) == "IPv6 address on NPU 5; 31 of 32 NPUs have IPv4"


def test_a_tie_blames_both() -> None:
    addresses = moved(a2(("h1", "h2"), 1), {("h1", 0): "2001:db8::5/64"})
    [one] = judged("device_ip_families_mixed", addresses=addresses)
    assert one.hosts == ("h1", "h2")
    assert one.values["groups"] == {"IPv4": "NPU 0 of h2", "IPv6": "NPU 0 of h1"}


def test_one_npu_alone() -> None:
    with pytest.raises(Skip):
        judged("device_ip_families_mixed", addresses=a2(("h1",), 1))
