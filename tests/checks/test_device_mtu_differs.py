from doctor import PerHost
from doctor.facts.hccn.link_state import DeviceMtu
from tests.checks.device_network import HOSTS, per, run_check

USUAL = DeviceMtu(by_npu=dict.fromkeys(range(8), 4200))


def test_the_minority_is_named() -> None:
    outlier = DeviceMtu(by_npu={**USUAL.by_npu, 3: 1500})
    [finding] = run_check("device_mtu_differs", mtus=PerHost({**per(HOSTS, USUAL), "h2": outlier}))
    assert finding.hosts == ("h2",)
    assert str(finding) == "MTU of 1500 bytes on NPU 3; 31 of 32 NPUs have 4200 bytes"
