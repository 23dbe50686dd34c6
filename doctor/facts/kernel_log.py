"""The kernel's log since the host was started: only lines that report a fault, with their age."""

from __future__ import annotations

import errno
import math
import os
import re
from typing import TypedDict

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.quantities import DAY, HOUR, ago_text
from doctor.engine.texts import beginning, filled
from doctor.facts.kernel_faults import (
    KernelFaultRow,
    fault_pattern,
    fault_rows,
    fault_words,
    literals,
    named_device,
    rows_in,
)
from doctor.remote.runtime.reading import read_text
from doctor.remote.runtime.streams import kernel_records

FAULT_TEXTS = fault_words()
"""Of records that may report a fault: one of these is in each."""
UNLISTED_TEXTS = fault_words(unlisted=True)
"""Of records that no row of the table names, and may report a fault, at warning level; at error level all are kept."""
DIRE_TEXTS = literals("dire")
"""Of those below warning level: one of these is in each, in lower case."""
MAX_LINES, MAX_OF_A_WORD, MAX_UNLISTED, MAX_ALIKE = 400, 100, 100, 5
"""Of the newest; a message that floods the log leaves room for others. Alike: unlisted ones that differ in numbers."""
NEAR = 60
"""Seconds: what a driver says around a fault that a row names is of that fault."""
ERROR_LEVEL, WARNING_LEVEL, INFORMATION_LEVEL = 3, 4, 6
"""KERN_ERR, KERN_WARNING and KERN_INFO of linux/kern_levels.h."""


def _read_log() -> bytes:
    """All records of /dev/kmsg, for at most 5 s. Raises: OSError."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        return b"".join(kernel_records(log, 1 << 25, 5))
    finally:
        os.close(log)


def _may_be_unlisted(level: int, line: str, drivers: list[str]) -> bool:
    """What no row names: all errors, of drivers their warnings, and below these what has the plainest words."""
    if level <= ERROR_LEVEL or level > INFORMATION_LEVEL:
        return level <= ERROR_LEVEL
    is_loud = level == WARNING_LEVEL or any(text in line.lower() for text in DIRE_TEXTS)
    return is_loud and any(word in line for word in drivers)


def read_kernel_log(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the newest records of /dev/kmsg that may report a fault, each with its age in seconds."""
    try:
        data = _read_log()
    except OSError as error:
        return {"error": error.errno, "text": error.strerror}
    uptime = float(read_text("/proc/uptime").split()[0])
    present, others = ([word for word in texts if word.encode() in data] for texts in (FAULT_TEXTS, UNLISTED_TEXTS))
    lines: list[list[object]] = []
    counts = dict.fromkeys(present, 0)
    alike: dict[str, int] = {}
    unlisted = 0
    record = re.compile(
        r"([0-7]),\d+,(\d+),[^;]*;(.*)"
    )  # of programs, which write there too, the first number is larger
    for line in reversed(data.decode("utf-8", "replace").splitlines()):
        level = int(line[0]) if line[1:2] == "," and line[0] in "01234567" else 8
        keywords = [word for word in present if word in line]
        is_unlisted = not keywords and _may_be_unlisted(level, line, others)
        match = record.match(line) if keywords or is_unlisted else None
        if not match or "SATA link" in line or len(lines) - unlisted >= MAX_LINES:
            continue
        if is_unlisted:
            kind = re.sub(r"[0-9a-f]{2,}|[0-9]", "", match.group(3)[:100])
            alike[kind] = alike.get(kind, 0) + 1
            is_kept = unlisted < MAX_UNLISTED and alike[kind] <= MAX_ALIKE
            unlisted += is_kept
        else:
            is_kept = min(counts[word] for word in keywords) < MAX_OF_A_WORD
            counts.update((word, counts[word] + 1) for word in keywords if is_kept)
        if is_kept:
            age, text = max(0.0, uptime - int(match.group(2)) / 1e6), match.group(3)[:300]
            module = re.match(r"(\w+): (?:Unknown symbol|disagrees about|version magic)", text)
            if module and read_text("/sys/module/" + module.group(1) + "/initstate"):
                continue  # it was loaded since
            function = re.match(r"[\w-]+ \[?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", text)
            kind = read_text("/sys/bus/pci/devices/" + function.group(1) + "/class")[2:6] if function else ""
            lines.append([round(age, 1), text, level, kind])
    return {"uptime": uptime, "lines": lines[::-1]}


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """One line of the log."""

    age: float
    """Seconds before the log was read."""
    text: str
    level: int = WARNING_LEVEL
    """Of linux/kern_levels.h: the smaller, the more severe."""
    pci_class: str = ""
    """Of the PCI function that a driver speaks of, as 0200 for a network card; empty for what a row names."""


class LoggedValues(TypedDict):
    """What each finding of logged messages shows."""

    count: int
    age: str
    """Of the newest."""
    text: str


class PlacedValues(LoggedValues):
    """The same, with what was reported and where."""

    kind: str
    where: str
    device: str | None


class LoggedFault(msgspec.Struct, frozen=True):
    """All messages of one kind about one device."""

    row: KernelFaultRow
    device: str
    """Empty where the message names none."""
    count: int
    age: float
    """Seconds since the newest of them."""
    text: str
    """The newest of them."""
    groups: dict[str, str]
    """What the newest names, by the groups of the row's pattern."""
    start: float = math.inf
    """How many seconds after the host was started the newest was logged."""

    @property
    def values(self) -> LoggedValues:
        age, is_earlier = ago_text(self.age), self.start <= self.row.before_start
        when = filled("before the host was started, {0}", age) if is_earlier else age
        return {"count": self.count, "age": when, "text": beginning(self.text, 160)}

    @property
    def placed_values(self) -> PlacedValues:
        where = filled(" at {0}", self.device) if self.device else ""
        return {"kind": self.row.meaning, "where": where, "device": self.device or None, **self.values}


class KernelLog(Fact, frozen=True):
    """Lines of the kernel's log that report a fault, the oldest first; at most the last 400.

    Raw output, as JSON::

        {"uptime": 93212.55, "lines": [[200.9, "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, Timeout", 3]]}
    """

    probe = ask(read_kernel_log, requires="/dev/kmsg", root=True)

    uptime: float
    """Seconds since the host was started."""
    lines: tuple[LogLine, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> KernelLog:
        if "" in answer and answer[""].ended == "absent":
            raise Absent("the kernel log is not visible here, as in a container")
        data = answer.json()
        error = data.get("error") if isinstance(data, dict) else None
        if error in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
            raise Absent("the kernel log is not visible here, as in a container")
        if error in (errno.EPERM, errno.EACCES):
            raise Unreadable("only root may read the kernel log (kernel.dmesg_restrict): use --sudo")
        if error:
            raise Unreadable(filled("/dev/kmsg: {0}", data.get("text")))
        return msgspec.convert(data, cls)

    def faults(self, check: str) -> list[LoggedFault]:
        """What the table's rows of a check find, a row after the other, in each the newest first.

        What a newer message about the same device clears is left out.
        """
        return [fault for row in fault_rows().values() if row.check == check for fault in self._faults_of(row)]

    def merged_faults(self, check: str) -> list[LoggedFault]:
        """The same, those of one meaning about one device as one: the newest of them, with the sum of their counts."""
        merged: dict[tuple[str, str], LoggedFault] = {}
        for fault in self.faults(check):
            before = merged.get((fault.row.meaning, fault.device), fault)
            count = fault.count if before is fault else before.count + fault.count
            newest = min(before, fault, key=lambda each: each.age)
            merged[fault.row.meaning, fault.device] = msgspec.structs.replace(newest, count=count)
        return list(merged.values())

    def _faults_of(self, row: KernelFaultRow) -> list[LoggedFault]:
        within = row.hours * HOUR or self.uptime
        cleared: dict[str, float] = {}
        for line, match in self.of_row(row.cleared_by, within) if row.cleared_by else ():
            cleared.setdefault(named_device(match), line.age)
        faults: dict[str, LoggedFault] = {}
        matching = [
            (line, match)
            for line, match in self.of_row(row.id, within)
            if (_judging_row(line) == row.id if row.unlisted else line.level <= row.level)
        ]
        lines = self._listed() if row.unlisted and matching else []
        named_lines = {id(line) for line, _ in lines}
        named = [line.age for line, match in matching if row.one_fault and named_device(match)]
        for line, match in matching:
            device = named_device(match)
            if cleared.get(device, line.age) < line.age:
                continue
            if row.unlisted and (
                id(line) in named_lines
                or any(abs(other.age - line.age) <= NEAR for other, text in lines if _is_of(device, text, other))
            ):
                continue
            if not device and any(abs(age - line.age) <= NEAR for age in named):
                continue
            groups = {name: text for name, text in match.groupdict().items() if text}
            newest = faults.get(device) or LoggedFault(
                row, device, 0, line.age, line.text, groups, self.uptime - line.age
            )
            faults[device] = msgspec.structs.replace(newest, count=newest.count + 1)
        return list(faults.values())

    def _listed(self) -> list[tuple[LogLine, str]]:
        """The lines that rows of the table name, each with the device of its fault."""
        rows = {name for name, row in fault_rows().items() if row.check and not row.unlisted}
        return [
            (line, named_device(match))
            for line in self.lines
            for name in rows_in(line.text)
            if name in rows and (match := fault_pattern(name).search(line.text))
        ]

    def of_row(self, name: str, within: float = DAY) -> list[tuple[LogLine, re.Match[str]]]:
        """Lines of the last ``within`` seconds that a row of the table finds, the newest first."""
        return [
            (line, match)
            for line in reversed(self.lines)
            if line.age <= within and name in rows_in(line.text) and (match := fault_pattern(name).search(line.text))
        ]


def _is_of(device: str, named: str, line: LogLine) -> bool:
    """Whether a message about ``device``, or about all devices of a driver, may be of the fault that a line names."""
    return device in ("", named) or line.text.startswith((device + " ", device + ":"))


def _judging_row(line: LogLine) -> str:
    """The first row that finds a line at its level and of its class of device: what several find counts once."""
    rows = (fault_rows()[name] for name in rows_in(line.text))
    return next((row.id for row in rows if line.level <= row.level and re.match(row.pci_class, line.pci_class)), "")
