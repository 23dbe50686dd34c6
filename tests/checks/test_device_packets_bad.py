"""What device-packets-bad finds."""

from __future__ import annotations

from doctor.facts.hccn.traffic import PortCounters, PortGrowth
from tests.checks.devices import of

look = of("device_packets_bad")


def test_a_quiet_port() -> None:
    assert look(PortCounters(by_npu={0: PortGrowth({}, {})})) == []


def test_counters_that_grow() -> None:
    growth = PortGrowth({"roce_rx_err_pkt_num": 3}, {"mac_rx_pfc_pkt_num": 9})
    (finding,) = look(PortCounters(by_npu={0: PortGrowth({}, {}), 5: growth}))
    assert finding.values["npu"] == 5
    assert finding.values["observed"] == {"roce_rx_err_pkt_num": 3, "mac_rx_pfc_pkt_num": 9}
