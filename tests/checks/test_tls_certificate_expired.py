from doctor.facts.hccn import TlsSwitches
from tests.checks.device_network import judged


def test_valid() -> None:
    assert judged("tls_certificate_expired", switches=TlsSwitches(by_npu={0: True, 1: True})) == []


def test_expired_and_in_use() -> None:
    [one] = judged("tls_certificate_expired", switches=TlsSwitches(by_npu={0: True, 1: True}, expired=(1,)))
    assert one.values["npu"] == 1


def test_expired_and_not_in_use() -> None:
    assert judged("tls_certificate_expired", switches=TlsSwitches(by_npu={0: False}, expired=(0,))) == []
