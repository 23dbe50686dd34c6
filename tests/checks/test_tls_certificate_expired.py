from doctor.facts.hccn import TlsSwitches
from tests.checks.device_network import run_check


def test_valid() -> None:
    assert run_check("tls_certificate_expired", switches=TlsSwitches(by_npu={0: True, 1: True})) == []


def test_expired_and_in_use() -> None:
    [finding] = run_check("tls_certificate_expired", switches=TlsSwitches(by_npu={0: True, 1: True}, expired=(1,)))
    assert finding.values["npu"] == 1


def test_expired_and_not_in_use() -> None:
    assert run_check("tls_certificate_expired", switches=TlsSwitches(by_npu={0: False}, expired=(0,))) == []
