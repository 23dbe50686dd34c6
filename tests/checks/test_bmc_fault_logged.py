"""What bmc-fault-logged finds; what controllers log is in tests/facts/test_bmc_events.py."""

from __future__ import annotations

from doctor.facts.bmc_events import BmcEvent, BmcEvents
from tests.checks.run_check import messages, run_check


def test_each_event_with_its_sensor() -> None:
    event = BmcEvent("Power Supply PS1 Status", "Power Supply AC lost", "a fault of a power supply", 2, 120.0)
    ((host, message),) = messages(run_check("bmc-fault-logged", {"w1": [BmcEvents(events=(event,))]}))
    assert host == "w1"
    assert message.startswith("the management controller logged a fault of a power supply, 2 times, last 2 min ago: ")
    assert message.endswith(": Power Supply PS1 Status: Power Supply AC lost")
    assert messages(run_check("bmc-fault-logged", {"w1": [BmcEvents(events=())]})) == []
