from ipaddress import ip_interface

import pytest

from doctor import Skip
from doctor.facts.hccn.device_addresses import DetectAddresses, DeviceAddresses
from tests.checks.device_network import a2, run_check, watching


def test_all_watch_something() -> None:
    assert run_check("detect_address_unset", addresses=a2()["h1"], detect=watching("29.1.0.1")) == []


def test_those_that_watch_nothing_are_named() -> None:
    detect = DetectAddresses(by_npu={}, unset=(0, 3))
    [finding] = run_check("detect_address_unset", addresses=a2()["h1"], detect=detect)
    assert finding.values["npus"] == [0, 3]


def test_an_npu_without_an_address_need_not_watch() -> None:
    some = DeviceAddresses(by_npu={2: ip_interface("29.1.0.12/16")}, unset=(0, 1))
    assert run_check("detect_address_unset", addresses=some, detect=DetectAddresses(by_npu={}, unset=(0, 1))) == []


def test_no_npu_has_an_address() -> None:
    bare = DeviceAddresses(by_npu={}, unset=(0, 1))
    with pytest.raises(Skip):
        run_check("detect_address_unset", addresses=bare, detect=DetectAddresses(by_npu={}, unset=(0, 1)))
