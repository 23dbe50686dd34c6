import pytest

from doctor import Skip
from doctor.facts.hccn.device_addresses import DetectAddresses
from tests.checks.device_network import a2, run_check, watching


def test_another_address() -> None:
    assert run_check("detect_address_is_self", addresses=a2()["h1"], detect=watching("29.1.0.1")) == []


def test_its_own_address() -> None:
    [finding] = run_check("detect_address_is_self", addresses=a2()["h1"], detect=watching("29.1.0.12"))
    assert str(finding) == "the detect address of NPU 2 is its own address, 29.1.0.12; expected another"


def test_nothing_is_watched() -> None:
    with pytest.raises(Skip):
        run_check("detect_address_is_self", addresses=a2()["h1"], detect=DetectAddresses(by_npu={}, unset=(0, 1)))
