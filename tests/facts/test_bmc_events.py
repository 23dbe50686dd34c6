"""What `ipmitool sel elist` prints, and what of it is a fault that stands."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.bmc_events import BmcEvents
from tests.facts.answers import read_outputs

BOOT = "System Event BIOS Evt Sensor | OEM System boot event | Asserted"


def log(*rows: str, clock: str = "07/14/2015 09:00:00", uptime: float = 93842.11) -> str:
    """Of a host that was started on 07/13/2015 at 06:55 by its controller's clock."""
    events = "".join(f" {number:x} | {row}\n" for number, row in enumerate(rows, 1))
    blocks = (("uptime", f"{uptime} 7.1\n"), ("clock", f"{clock}\n"), ("events", events))
    return "".join(f"-- {name} --\n{text}-- exit 0 --\n" for name, text in blocks)


def read(text: str) -> Any:
    return read_outputs(BmcEvents, one=Output(out=text))


def standing(*rows: str, **more: Any) -> list[tuple[str, str, int]]:
    value = read(log(*rows, **more))
    assert value.unread == {}
    return [(event.sensor, event.event, event.count) for event in value.events]


ILL = [
    # File 43567739741 of the public index: an Intel server's log; others of ipmitool's own documentation and reports
    ("07/13/2015 | 12:00:27 | Memory Mmry ECC Sensor | Uncorrectable ECC | Asserted", "Memory Mmry ECC Sensor"),
    ("07/14/2015 | 08:11:36 | Power Supply PS1 Status | Power Supply AC lost | Asserted", "Power Supply PS1 Status"),
    ("07/14/15 | 08:09:44 UTC | Memory #0x88 | Uncorrectable ECC (CPU0_G1) | Asserted", "Memory #0x88"),
    (
        "07/14/2015 | 08:50:09 | Memory #0x02 | Uncorrectable ECC (UnCorrectable ECC |  DIMMD7) | Asserted",
        "Memory #0x02",
    ),
    ("07/14/2015 | 08:50:09 | Temperature GPU5 Temp | Upper Non-recoverable going high | Asserted", "Temperature GPU5"),
    (
        "07/14/2015 | 08:50:09 | Temperature Inlet | Upper Critical going high | Asserted | Reading 48 > Threshold 47",
        "Temperature Inlet",
    ),
    (
        "07/14/2015 | 08:50:09 | Fan FAN3 | Lower Critical going low  | Asserted | Reading 0 < Threshold 600 RPM",
        "Fan FAN3",
    ),
    ("07/14/2015 | 08:50:09 | Processor CPU1 Status | IERR | Asserted", "Processor CPU1 Status"),
    ("07/14/2015 | 08:50:09 | Critical Interrupt #0x72 | Bus Fatal Error | Asserted", "Critical Interrupt #0x72"),
    ("07/14/2015 | 08:50:09 | Power Supply #0xc8 | Presence detected | Deasserted", "Power Supply #0xc8"),
    ("07/14/2015 | 08:50:09 | Power Supply PS Redundancy | Redundancy Lost | Asserted", "Power Supply PS Redundancy"),
    # The words of ipmitool's own table, lib/ipmi_event.c: emulated
    ("07/14/2015 | 08:50:09 | Processor CPU2 Status | Configuration Error | Asserted", "Processor CPU2 Status"),
    (
        "07/14/2015 | 08:50:09 | Event Logging Disabled SEL | Correctable memory error logging disabled | Asserted",
        "Event Logging Disabled SEL",
    ),
    ("07/14/2015 | 08:50:09 | Memory DIMM_A1 | Critical Overtemperature | Asserted", "Memory DIMM_A1"),
    ("07/14/2015 | 08:50:09 | Power Unit #0x01 | Soft-power control failure | Asserted", "Power Unit #0x01"),
    ("07/14/2015 | 08:50:09 | Critical Interrupt #0x73 | Bus Degraded | Asserted", "Critical Interrupt #0x73"),
    ("07/14/2015 | 08:50:09 | Slot / Connector #0x21 | Fault Status | Asserted", "Slot / Connector #0x21"),
    ("07/14/2015 | 08:50:09 | Chip Set #0x19 | Thermal Trip | Asserted", "Chip Set #0x19"),
    (
        "07/14/2015 | 08:50:09 | System Event #0x12 | Undetermined system hardware failure | Asserted",
        "System Event #0x12",
    ),
    ("07/14/2015 | 08:50:09 | Drive Slot / Bay HDD3 | Rebuild Aborted | Asserted", "Drive Slot / Bay HDD3"),
    ("07/14/2015 | 08:50:09 | Drive Slot / Bay HDD4 | Predictive Failure Asserted | Asserted", "Drive Slot / Bay HDD4"),
    ("07/14/2015 | 08:50:09 | OS Critical Stop #0x46 | Run-time critical stop | Asserted", "OS Critical Stop #0x46"),
    ("07/13/2015 | 06:45:00 | Memory #0x53 | Uncorrectable ECC | Asserted", "Memory #0x53"),
    ("07/14/2015 | 08:50:09 | Module / Board #0x50 | Upper Critical going high | Asserted", "Module / Board #0x50"),
    ("07/14/2015 | 08:50:09 | Temperature Inlet | Lower Non-recoverable going low  | Asserted", "Temperature Inlet"),
]


@pytest.mark.parametrize(("row", "sensor"), ILL, ids=[sensor for _, sensor in ILL])
def test_a_part_that_failed(row: str, sensor: str) -> None:
    ((name, _, count),) = standing(f"07/13/2015 | 06:56:52 | {BOOT}", row)
    assert (name.startswith(sensor), count) == (True, 1)


WELL = [
    # The same Intel server: a sensor that read 0 for a second, a supply that lost its power for two, corrected errors.
    (
        "07/14/2015 | 06:33:02 | Temperature SSB Temp | Lower Critical going low  | Asserted | Reading 0 < Threshold 0",
        "07/14/2015 | 06:33:04 | Temperature SSB Temp | Lower Critical going low  | Deasserted | Reading 43",
    ),
    (
        "07/14/2015 | 07:11:36 | Power Unit Pwr Unit Status | Failure detected | Asserted",
        "07/14/2015 | 07:11:36 | Power Supply PS1 Status | Power Supply AC lost | Asserted",
        "07/14/2015 | 07:11:43 | Power Supply PS1 Status | Power Supply AC lost | Deasserted",
        "07/14/2015 | 07:11:43 | Power Unit Pwr Unit Status | Failure detected | Deasserted",
        "07/14/2015 | 07:11:48 | Physical Security Physical Scrty | System unplugged from LAN | Asserted",
    ),
    ("07/13/2015 | 12:00:28 | Critical Interrupt PCIe Cor Sensor |  | Asserted",),
    ("07/13/2015 | 12:05:54 | Button Button | Reset Button pressed | Asserted",),
    ("07/13/2015 | 12:05:54 | Memory #0x48 | Correctable ECC | Asserted",),
    ("07/13/2015 | 12:05:54 | Critical Interrupt #0x72 | Bus Correctable Error | Asserted",),
    (
        "07/14/2015 | 06:50:09 | Power Unit Power Redundancy | Redundancy Lost | Asserted",
        "07/14/2015 | 07:50:13 | Power Unit Power Redundancy | Fully Redundant | Asserted",
    ),
    ("04/10/2008 | 14:50:13 | Power Unit Power Redundancy | Fully Redundant",),
    ("06/01/2015 | 12:00:27 | Memory Mmry ECC Sensor | Uncorrectable ECC | Asserted",),
    (
        " Pre-Init  |0000000123| Power Supply #0xc8 | Failure detected | Asserted",
        "06/01/2015 | 12:00:27 | System Event #0x01 | Timestamp Clock Sync | Asserted",
    ),
    (" Pre-Init  |0000000123| System Event #0x01 | Timestamp Clock Sync | Asserted",),
    # Of a cold room, of a fan that runs fast, and a limit that leaves time.
    ("07/14/2015 | 08:50:09 | Temperature Inlet | Lower Critical going low  | Asserted",),
    ("07/14/2015 | 08:50:09 | Fan FAN3 | Upper Critical going high | Asserted",),
    ("07/14/2015 | 08:50:09 | Module / Board #0x50 | Upper Non-critical going high | Asserted",),
    ("Linux kernel panic: Fatal excep",),
    ("07/13/2015 | 12:05:54 | OEM record c1 | 000137 | 010a1f0b0203",),
]


@pytest.mark.parametrize("rows", WELL, ids=[rows[0][:60] for rows in WELL])
def test_what_is_over_or_no_fault(rows: tuple[str, ...]) -> None:
    assert standing(*rows) == []


def test_an_event_that_came_back_stands_and_is_counted() -> None:
    ac = "Power Supply PS2 Status | Power Supply AC lost"
    rows = [f"07/14/2015 | 0{hour}:00:00 | {ac} | {state}" for hour, state in ((6, "Asserted"), (7, "Deasserted"))]
    again = [f"07/14/2015 | 08:{minute}:00 | {ac} | Asserted" for minute in (10, 20)]
    assert standing(*rows, *again) == [("Power Supply PS2 Status", "Power Supply AC lost", 2)]


def test_a_log_without_entries() -> None:
    text = log().replace("-- events --\n", "-- events --\nSEL has no entries\n")
    assert read(text).events == () and read(text).unread == {}


def test_a_fault_without_a_time_is_unread() -> None:
    value = read(log(" Pre-Init  |0000000123| Power Supply #0xc8 | Failure detected | Asserted"))
    assert value.events == () and "Power Supply #0xc8" in value.unread


@pytest.mark.parametrize(
    "text",
    [
        log("07/13/2015 | 12:05:54 | Memory #0x48 | Correctable ECC | Asserted").replace("exit 0", "exit 1"),
        log(clock="Get SEL Time command failed"),
        log(clock="Unspecified"),
        log()[:60],
        log().rpartition("-- exit")[0],
        log().replace("-- events --\n", "-- events --\nGet SEL Info command failed: Timeout\n"),
        "",
    ],
)
def test_what_cannot_be_read_is_unknown(text: str) -> None:
    assert isinstance(read(text), Unreadable)


def test_a_row_of_another_form_is_unread() -> None:
    assert read(log().replace("-- events --\n", "-- events --\n1, 07/13/2015, Memory, bad\n")).unread


@pytest.mark.parametrize(
    "words",
    [
        "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: No such file or directory",
        "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: Permission denied",
    ],
)
def test_a_host_without_a_controller_or_whose_user_may_not_ask_it(words: str) -> None:
    text = f"-- uptime --\n9384.1 7.1\n-- exit 0 --\n-- clock --\n{words}\n-- exit 1 --\n"
    assert type(read(text)) is Absent
