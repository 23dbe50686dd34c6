import pytest

from doctor import Skip
from tests.checks.device_network import a1, a2, moved, rails, run_check


def test_one_mask_in_each_segment() -> None:
    for addresses in (a1(), a2(), rails()):
        assert run_check("device_netmask_differs", addresses=addresses) == []


def test_a_narrow_mask() -> None:
    [finding] = run_check("device_netmask_differs", addresses=moved(a2(), {("h2", 3): "29.1.1.13/24"}))
    assert finding.hosts == ("h2",)
    assert str(finding) == "netmask of 24 bits in 29.1.0.0/16 on NPU 3; most NPUs there have 16 bits"


def test_a_wide_mask() -> None:
    [finding] = run_check("device_netmask_differs", addresses=moved(a1(), {("h2", 3): "10.0.3.3/16"}))
    assert (finding.hosts, finding.values["observed"], finding.values["expected"]) == (("h2",), 16, 24)


def test_segments_that_do_not_touch_may_have_masks_of_their_own() -> None:
    addresses = moved(rails(), {(host, 0): f"172.20.0.{n}/28" for n, host in enumerate(("h1", "h2", "h3", "h4"), 1)})
    assert run_check("device_netmask_differs", addresses=addresses) == []


def test_a_tie_blames_both() -> None:
    addresses = moved(a2(("h1", "h2"), 1), {("h1", 0): "29.1.0.10/24"})
    [finding] = run_check("device_netmask_differs", addresses=addresses)
    assert finding.hosts == ("h1", "h2")


def test_one_address_is_nothing_to_compare() -> None:
    with pytest.raises(Skip):
        run_check("device_netmask_differs", addresses=a2(("h1",), 1))
