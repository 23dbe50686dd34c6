"""What device-traffic-class-differs finds."""

from __future__ import annotations

from doctor.facts.hccn.traffic import DeviceTrafficClasses
from tests.checks.devices import fleet, of

look = of("device_traffic_class_differs")
SAME = "0-31:0 32-39:4 40-63:0"


def test_a_port_with_other_classes() -> None:
    (finding,) = look(
        fleet(DeviceTrafficClasses(by_npu={0: SAME, 1: SAME}), DeviceTrafficClasses(by_npu={0: "0-63:0"}))
    )
    assert str(finding) == f"NPU 0 maps DSCP to class 0-63:0; 2 of 3 NPUs map {SAME}"
