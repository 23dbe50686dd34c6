"""One run as the history keeps it: which checks looked at which hosts, and what they found there. Pure.

Hosts are bits of a number: bit 0 is the fleet as a whole, bit n the name n-1. Checks with the same coverage share one
entry. Values and messages are not kept, so that a record holds no more than names of hosts and checks.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from doctor.engine.check import Check
from doctor.engine.decoding import inflate
from doctor.engine.exit_code import exit_code, verdict
from doctor.engine.result import Finding, Outcome, Report, Severity
from doctor.engine.texts import filled

FORMAT = 1
"""Version of the format; records of another one are not read."""
MAX_RECORD_BYTES = 1 << 20
"""Bytes of a file."""
MAX_DECODED_BYTES = 16 << 20
"""Bytes of a file, decompressed."""
COMPRESSION_LEVEL = 3

LOCAL = "localhost"
"""What a run of this machine alone calls it."""
FLEET = ""
"""The name that stands for the fleet as a whole."""

State = Literal["error", "warning", "waived", "clear"]
"""Of one check on one host in one run that looked at it."""


class CoverageGroup(msgspec.Struct, frozen=True, array_like=True):
    """Checks that looked at the same hosts."""

    hosts: bytes
    """Bits of the hosts that were looked at, wholly; big-endian."""
    compares: bool
    """The checks compare hosts: what they say of one depends on which others were there."""
    checks: tuple[str, ...]


class BlamedHosts(msgspec.Struct, frozen=True, array_like=True):
    """The hosts that one check blames, as bits; a host with an error is in no other."""

    check: str
    errors: bytes
    warnings: bytes
    waived: bytes


class RunRecord(msgspec.Struct, frozen=True, array_like=True):
    """One run."""

    format: int
    started: str
    """UTC, ISO 8601."""
    seconds: float
    command: str
    verdict: str
    host_count: int
    """So many of the names are hosts of the run; the rest is only blamed."""
    names: tuple[str, ...]
    groups: tuple[CoverageGroup, ...]
    blamed: tuple[BlamedHosts, ...]
    values: bytes = b""
    """Settings and versions, as `doctor.history.kept_values` encodes them; empty where the run read too few."""
    code: int | None = None
    """The exit code; None in records of earlier versions."""


class BadRecord(Exception):
    """A file that holds no record of a run, or one of another version."""


def recorded_names(hosts: Collection[str], machine: str) -> dict[str, str]:
    """``hosts`` as a record has them: a home folder may be shared, and then localhost is another machine on each.

    >>> recorded_names(["localhost"], "login1"), recorded_names(["localhost", "login1"], "login1")
    ({'localhost': 'login1'}, {'localhost': 'localhost', 'login1': 'login1'})
    """
    return {host: machine if host == LOCAL and machine not in hosts else host for host in hosts}


def make_record(
    report: Report,
    checks: Iterable[Check],
    command: str,
    machine: str = LOCAL,
    values: bytes = b"",
    code: int | None = None,
) -> RunRecord:
    """The record of a report.

    ``checks``: those of the catalogue, which say whether they compare hosts. ``machine``: this machine's name.
    ``values``: see `RunRecord`. ``code``: the exit code; None: that of a run without options.
    """
    ran = {outcome.check for outcome in report.outcomes}
    comparing = {check.name for check in checks if check.name in ran and not check.per_host and check.facts}
    names = dict.fromkeys(report.hosts)
    host_count = len(names)
    findings = [(outcome, *_blamed(outcome)) for outcome in report.outcomes if outcome.findings or outcome.waived]
    names.update((host, None) for _, *blamed in findings for hosts in blamed for host in hosts if host)
    bits = _host_bits(tuple(names))
    return RunRecord(
        FORMAT,
        report.started,
        round(report.seconds, 1),
        command,
        verdict(report).value,
        host_count,
        tuple(recorded_names(names, machine).values()),
        _coverage(report, comparing, bits),
        tuple(
            BlamedHosts(outcome.check, *(_to_bytes(_sum_bits(bits, hosts)) for hosts in blamed))
            for outcome, *blamed in findings
        ),
        values,
        exit_code(report) if code is None else code,
    )


def _coverage(report: Report, comparing: Container[str], bits: Mapping[str, int]) -> tuple[CoverageGroup, ...]:
    """The checks, grouped by the hosts that they judged and by whether they compare hosts."""
    groups: dict[tuple[int, bool], list[str]] = {}
    all_hosts = (1 << len(dict.fromkeys(report.hosts)) + 1) - 2
    for outcome in report.outcomes:
        judged = _judged_hosts(outcome, report.hosts, bits, all_hosts)
        groups.setdefault((judged, outcome.check in comparing), []).append(outcome.check)
    return tuple(
        CoverageGroup(_to_bytes(judged), compares, tuple(members)) for (judged, compares), members in groups.items()
    )


@functools.lru_cache(maxsize=8)
def _host_bits(names: tuple[str, ...]) -> dict[str, int]:
    """The bit of each name, and of the fleet. Runs of one fleet share the result: callers must not change it."""
    return {FLEET: 1, **{name: 1 << number for number, name in enumerate(names, 1)}}


def _judged_hosts(outcome: Outcome, hosts: tuple[str, ...], bits: Mapping[str, int], all_hosts: int) -> int:
    """Which hosts the check judged wholly; and the fleet, where nothing of it was unknown."""
    gaps = {*outcome.unknown, *outcome.crashed}
    if FLEET in gaps:
        return 0
    coverage = all_hosts if outcome.evaluated_hosts == hosts else _sum_bits(bits, outcome.evaluated_hosts)
    uncovered = _sum_bits(bits, gaps)
    return coverage & ~uncovered | (1 if outcome.complete and not gaps else 0)


def _blamed(outcome: Outcome) -> tuple[set[str], set[str], set[str]]:
    """Hosts of errors; of warnings, without those; of waived findings, without both."""
    by_severity: dict[Severity, set[str]] = {Severity.ERROR: set(), Severity.WARNING: set()}
    for finding in outcome.findings:
        by_severity[outcome.severity_of(finding)].update(_hosts(finding))
    errors, warnings = by_severity[Severity.ERROR], by_severity[Severity.WARNING]
    warnings -= errors
    waived = {host for entry in outcome.waived for host in _hosts(entry.finding)} - errors - warnings
    return errors, warnings, waived


def _hosts(finding: Finding) -> tuple[str, ...]:
    return finding.hosts or (FLEET,)


def _sum_bits(bits: Mapping[str, int], names: Collection[str]) -> int:
    total = 0
    for name in names:
        total |= bits.get(name, 0)
    return total


def _to_bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def encode(record: RunRecord) -> bytes:
    """The record as a file holds it. Raises: ValueError for one that is too large to be read again."""
    data = msgspec.msgpack.encode(record)
    compressed = zlib.compress(data, COMPRESSION_LEVEL)
    if len(data) > MAX_DECODED_BYTES or len(compressed) > MAX_RECORD_BYTES:
        raise ValueError(
            filled("the record of {0} hosts is larger than {1} MiB", record.host_count, MAX_RECORD_BYTES >> 20)
        )
    return compressed


def decode(data: bytes) -> RunRecord:
    """The record in a file. Raises: BadRecord."""
    try:
        content = inflate(data, MAX_DECODED_BYTES)
    except ValueError as error:
        raise BadRecord(filled("is no record of a run: {0}", error)) from None
    try:
        record = msgspec.msgpack.decode(content, type=RunRecord)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRecord(filled("is no record of a run: {0}", type(error).__name__)) from None
    if record.format != FORMAT:
        raise BadRecord(filled("has format {0}; expected {1}", record.format, FORMAT))
    if not 0 <= record.host_count <= len(record.names):
        raise BadRecord("counts more hosts than it names")
    return record


class _Coverage(NamedTuple):
    judged: int
    compares: bool


class RunView:
    """A record, ready to be asked."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.hosts = frozenset(record.names[: record.host_count])
        self._bits = _host_bits(record.names)
        self._relations: dict[frozenset[str], tuple[bool, bool]] = {}
        self._coverage = {
            check: _Coverage(int.from_bytes(group.hosts, "big"), group.compares)
            for group in record.groups
            for check in group.checks
        }
        self._blamed = {
            blamed.check: tuple(int.from_bytes(bits, "big") for bits in (blamed.errors, blamed.warnings, blamed.waived))
            for blamed in record.blamed
        }

    @property
    def checks(self) -> Collection[str]:
        return self._coverage.keys()

    def blamed(self) -> Iterable[tuple[str, str]]:
        """Every check and host with a finding, waived or not."""
        for check, states in self._blamed.items():
            present = states[0] | states[1] | states[2]
            for name, bit in self._bits.items():
                if present & bit:
                    yield check, name

    def looked_at(self, host: str) -> int:
        """How many checks judged the host."""
        bit = self._bits.get(host, 0)
        return sum(bool(coverage.judged & bit) for coverage in self._coverage.values())

    def is_comparable(self, check: str, host: str, fleet: frozenset[str]) -> bool:
        """The run was to look: it had the check and the host, among hosts that can be compared with ``fleet``.

        What a check says that compares hosts counts only within one fleet; what is said of the fleet, or of a name
        that is no host of the run, only for the same hosts.
        """
        coverage = self._coverage.get(check)
        if coverage is None:
            return False
        if fleet not in self._relations:
            at_least_half = 2 * len(self.hosts & fleet) >= len(self.hosts | fleet)
            self._relations[fleet] = (self.hosts == fleet, at_least_half)
        is_same, is_one = self._relations[fleet]
        return is_same if host not in self.hosts else is_one or not coverage.compares

    def state(self, check: str, host: str) -> State | None:
        """What the check said of the host; None where it did not look, or not wholly."""
        coverage, bit = self._coverage.get(check), self._bits.get(host, 0)
        if coverage is None:
            return None
        for state, bits in zip(_PRESENT_STATES, self._blamed.get(check, (0, 0, 0)), strict=True):
            if bits & bit:
                return state
        return "clear" if coverage.judged & (bit if host in self.hosts else 1) else None


_PRESENT_STATES: tuple[State, ...] = ("error", "warning", "waived")
