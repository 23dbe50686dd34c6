"""The event log of a host's management controller (BMC): faults of memory, power, cooling and buses since its start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.reported_value import ToolBlock, tool_blocks

LAST = 256
"""Records that are read, the newest; a controller answers some 100 in a second."""
_SCRIPT = f"""export LC_ALL=C TZ=UTC
echo "-- uptime --"; cat /proc/uptime; echo "-- exit $? --"
echo "-- clock --"; timeout 10 ipmitool sel time get </dev/null 2>&1; code=$?; echo "-- exit $code --"
[ $code = 0 ] || exit 0
events=$(timeout 40 ipmitool sel elist last {LAST} </dev/null 2>&1) || \
events=$(timeout 20 ipmitool sel list last {LAST} </dev/null 2>&1)
code=$?; echo "-- events --"; printf '%s\\n' "$events"; echo "-- exit $code --\""""
"""Where the names of the sensors cannot be read, their numbers are shown."""
_NO_BMC = re.compile(r"Could not open device at /dev/ipmi0.*: No such file", re.I)
_REFUSED = re.compile(r"Permission denied|Operation not permitted", re.I)
_ROW = re.compile(r"[ \t]*([0-9a-f]{1,8}) \|([^|\n]{1,24})\|([^|\n]{1,40})\|([^|\n]{1,120})\|([^\n]{0,300})", re.I)
_TEXT_ROW = re.compile(r"[ \t]*[0-9a-f]{1,8} \|(?:[^|\n]{1,24}\|[^|\n]{1,40}\| ?OEM |[^|\n]{0,200}$)", re.I)
"""A record of a vendor's own, or of the words of a panic: no sensor has set it."""
_FORMS = tuple(f"{day} {hour}" for day in ("%m/%d/%Y", "%m/%d/%y", "%Y-%m-%d") for hour in ("%H:%M:%S", "%I:%M:%S %p"))
PRESENCE_LOST = "presence lost"
"""Of a part whose presence is no longer asserted."""
BEFORE_START = 1800.0
"""Seconds: an event that made the host restart was logged before its start."""
_KINDS = (
    # The beginning of a sensor, of an event, and what it means.
    ("Memory", r"Uncorrectable ECC|Parity|Memory Scrub Failed|Memory Device Disabled", "uncorrected memory errors"),
    ("Memory", r"Correctable ECC logging limit|Configuration Error|Critical Over", "a fault of a memory module"),
    (
        "Event Logging Disabled",
        r"(?i:correctable (?:memory|machine check) error)",
        "too many corrected errors to log them",
    ),
    (
        "Processor",
        r"IERR|Thermal Trip|FRB[123]|.*Uncorrect|Disabled|Configuration Error|Machine Check Exc",
        "an error of the processor",
    ),
    (
        "Power [SU]",
        rf"{PRESENCE_LOST}|Failure|Predictive|.*AC lost|AC out-of|Config|240VA|Interlock|Soft.power control fail",
        "a fault of a power supply",
    ),
    ("Power [SU]", r"Redundancy Lost|Non-Redundant: Insufficient", "too few power supplies"),
    ("Temperature", r"Upper (?:Critical|Non-recoverable) going high", "a temperature beyond its limit"),
    ("Fan|Cooling", r"Lower (?:Critical|Non-rec\w*) going low|Redundancy Lost|.*Insufficient", "a fault of a fan"),
    ("(?:Voltage|Current)", r".*Non-recoverable going|.* Critical going", "a voltage or current beyond its limit"),
    (
        "Critical Interrupt",
        r"Bus (?:Uncorrectable|Fatal|Timeout|Degraded)|PCI [PS]ERR|Fatal NMI|.*NMI/Diag|I/O [Cc]hannel",
        "an error of the PCIe bus",
    ),
    ("Chip ?[Ss]et", r"Thermal Trip|Soft.[Pp]ower", "an error of the chip set"),
    ("Slot", r"Fault Status", "a fault of a slot or of its card"),
    ("Cable", r"Config", "a cable in the wrong place"),
    ("Drive Slot", r"Drive Fault|Predictive Failure|In (?:Critical|Failed) Array|Rebuild Aborted", "a fault of a disk"),
    ("System Firmware Error", r"Unrecoverable|No usable|CPU|BIOS", "a fault at the start of the host"),
    ("System Event", r"Undetermined system hardware fail", "a fault of the hardware without a name"),
    ("OS (?:Critical )?Stop", r"Run-?time critical stop", "a kernel that stopped"),
    ("Watchdog", r"Hard reset|Power (?:down|cycle)|OS (?:Reset|Power)", "a host that hung and was reset"),
    (".", r"Predictive Failure Asserted", "a part that is about to fail"),
    (".", r"[Tt]ransition to (?:Critical|Non-rec)|(?:Upp|Low)er Non-rec\w* going", "a component in a critical state"),
    ("(?!Temperature|Fan|Cooling)", r"(?:Upper|Lower) Critical going", "a component in a critical state"),
)
"""Events of IPMI 2.0 (tables 42-1 to 42-3) by which a part of the host has failed, in ipmitool's words (ipmi_sel.h)."""
_ENDS = re.compile(r"Fully Redundant|Predictive Failure Deasserted|[Tt]ransition to OK|Presence [Dd]etected")
"""After it a sensor's earlier events are over, as after their deassertion."""


class BmcEvent(msgspec.Struct, frozen=True):
    """All events of one kind of one sensor that stand."""

    sensor: str
    """Such as ``Memory #0x48`` or ``Power Supply PS1 Status``."""
    event: str
    meaning: str
    count: int
    age: float
    """Seconds since the last of them."""


class BmcEvents(Fact, frozen=True):
    """Events of the management controller since the host was started by which a part has failed, and is not well again.

    Raw output, from ipmitool; a time is the controller's own::

        -- uptime --
        93842.11 2718281.82
        -- exit 0 --
        -- clock --
        07/14/2015 09:00:00
        -- exit 0 --
        -- events --
         2cc | 07/09/2015 | 06:33:04 | Temperature SSB Temp | Lower Critical going low  | Deasserted
         2d1 | 07/13/2015 | 12:01:52 | System Event BIOS Evt Sensor | OEM System boot event | Asserted
        -- exit 0 --
    """

    probe = run(_SCRIPT, requires="ipmitool", root=True, timeout=90, limit=1 << 17)

    events: tuple[BmcEvent, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> BmcEvents:
        blocks = {block.name: block for block in tool_blocks(answer.text(), "uptime|clock|events", r"\|")}
        clock = blocks.get("clock")
        if clock and clock.code and _NO_BMC.search(clock.text):
            raise Absent("the host has no management controller that ipmitool can reach")
        if clock and clock.code and _REFUSED.search(clock.text):
            raise Absent("only root may read the log of the management controller")
        uptime, now = re.match(r"([0-9]{1,10})(?:\.[0-9]+)? ", _required(blocks, "uptime")), None
        for line in _required(blocks, "clock").splitlines():
            now = now or _time(line)
        if not uptime or not now:
            raise Unreadable("ipmitool sel time get: no time")
        unread: dict[str, str] = {}
        rows = list(_rows(_required(blocks, "events"), unread))
        return cls(events=tuple(_standing(rows, now, int(uptime[1]) + BEFORE_START, unread)), unread=unread)


def _required(blocks: dict[str, ToolBlock], name: str) -> str:
    """A block's text. Raises: Unreadable where it is not there, or its command failed."""
    block = blocks.get(name)
    if block is None or block.code or block.problem:
        why = block.problem or strip_control_chars(block.text.strip(), 120) if block else filled("no answer")
        raise Unreadable(filled("ipmitool: {0}: {1}", name, why or filled("no answer")))
    if block.code is None:
        raise Unreadable(filled("ipmitool: {0}: {1}", name, filled("its end is missing")))
    return block.text


def _time(text: str) -> datetime | None:
    """A time as ipmitool prints it: ``07/14/2015 09:00:00``, since 1.8.19 ``07/14/15 09:00:00 UTC``."""
    bare = re.sub(r" [A-Z]{3,5}$", "", " ".join(text.replace("|", " ").split())[:40])
    for form in _FORMS:
        try:
            return datetime.strptime(bare, form)
        except ValueError:
            pass
    return None


Row = tuple["datetime | None", str, str, bool]
"""When, the sensor, the event, and whether it was asserted."""


def _rows(text: str, unread: dict[str, str]) -> Iterator[Row]:
    """The events of the log, the oldest first. What is no row is noted."""
    for line in text.splitlines():
        match = _ROW.match(line)
        if match and not _TEXT_ROW.match(line):
            event, _, state = match[5].partition("|")
            when = _time(f"{match[2]} {match[3]}")
            is_asserted, event = not state.strip().lower().startswith("deasserted"), " ".join(event.split())
            if event.lower() == "presence detected" and not is_asserted:
                event, is_asserted = PRESENCE_LOST, True
            yield when, " ".join(match[4].split()), event, is_asserted
        elif line.strip() and not _TEXT_ROW.match(line) and "has no entries" not in line:
            unread[filled("a row of the log")] = filled("not understood: {0}", strip_control_chars(line.strip(), 120))


def _meaning(sensor: str, event: str) -> str:
    """What has failed by an event; empty for one that tells of no fault."""
    kinds = (meaning for begin, pattern, meaning in _KINDS if re.match(begin, sensor) and re.match(pattern, event))
    return next(kinds, "")


def _standing(rows: list[Row], now: datetime, within: float, unread: dict[str, str]) -> Iterator[BmcEvent]:
    """Faults of the last ``within`` seconds that were not taken back since; one without a time is noted."""
    standing: dict[tuple[str, str], BmcEvent] = {}
    for number, (when, sensor, event, is_asserted) in enumerate(rows):
        if _ENDS.match(event) and is_asserted:
            for key in [key for key in standing if key[0] == sensor]:
                del standing[key]
        meaning = _meaning(sensor, event)
        if not meaning:
            continue
        if not is_asserted:
            standing.pop((sensor, event), None)
            continue
        latest = when or next((row[0] for row in rows[number:] if row[0]), None)
        if latest is None:
            unread[sensor] = filled("{0}: it has no time", event)
        elif (age := (now - latest).total_seconds()) <= within:
            before = standing.get((sensor, event))
            count = before.count + 1 if before else 1
            standing[sensor, event] = BmcEvent(sensor, event, meaning, count, max(0.0, age))
    yield from standing.values()
