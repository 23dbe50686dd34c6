"""What device-pfc-differs finds."""

from __future__ import annotations

from doctor.facts.hccn.traffic import DevicePfc
from tests.checks.devices import fleet, of

look = of("device_pfc_differs")


def test_a_port_without_a_lossless_priority() -> None:
    (finding,) = look(fleet(DevicePfc(by_npu={0: "00001000", 1: "00001000"}), DevicePfc(by_npu={0: "00000000"})))
    assert str(finding) == "priorities 00000000 are lossless on NPU 0; 2 of 3 NPUs have 00001000"
    assert finding.values["expected_bits"] == "0,0,0,0,1,0,0,0"
