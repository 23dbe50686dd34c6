"""Equal findings on many hosts become one group; runs of devices become a range."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from doctor.engine.result import Finding
from doctor.engine.sanitize import number_ranges
from doctor.report.layout.host_names import Fleet

RANGE_NAMES = ("npu", "gpu", "device", "rank", "port")
"""Values that are written as a range when nothing else differs: ``NPU 0-7``."""

MAX_KEY_CHARS = 2000


class FindingGroup(msgspec.Struct, frozen=True):
    """Findings with one template and the same values."""

    finding: Finding
    """Their text."""
    example: Finding
    """The first of them, as the check made it."""
    hosts: tuple[str, ...]
    count: int
    """How many findings are in it."""
    is_example: bool = False
    """The text holds the first host's own name; that of the other hosts differs by theirs alone."""


def grouped(findings: Sequence[Finding], fleet: Fleet) -> tuple[FindingGroup, ...]:
    """The findings by what they say: milder ones last, most hosts first, then as the inventory has them."""
    same: dict[tuple[str, str, bool], list[Finding]] = {}
    for finding in findings:
        same.setdefault((finding.template, _visible_fingerprint(finding), finding.is_warning), []).append(finding)
    groups = [_group(members, fleet) for members in same.values()]
    if len(groups) > 1:
        groups = _with_ranges(groups)
    positions, last = {**fleet.positions, "": -1}, len(fleet.hosts)

    def order(group: FindingGroup) -> tuple[bool, int, int]:
        return group.finding.is_warning, -len(group.hosts), positions.get((*group.hosts, "")[0], last)

    return tuple(sorted(groups, key=order))


def alike(groups: Sequence[FindingGroup], fleet: Fleet, labels: Sequence[str]) -> tuple[FindingGroup, ...]:
    """Groups with the same text and the same values of ``labels`` joined, even if they differ otherwise.

    The name of a finding's one host does not count as a difference. Groups of an error and of a warning stay two, and
    so do those of no host that have another place in a file as evidence.
    """
    same: dict[tuple[str, ...], list[FindingGroup]] = {}
    for group in groups:
        finding = group.finding
        bare = Finding(finding.template, hosts=finding.hosts)
        bare.values.update(without_host_name(finding))
        label_texts = fleet.format_values({label: bare.values[label] for label in labels if label in bare.values})
        place = "" if finding.hosts else str(finding.values.get("evidence") or "")
        key = (fleet.message(bare, MAX_KEY_CHARS), str(finding.is_warning), place, *label_texts.values())
        same.setdefault(key, []).append(group)
    return tuple(members[0] if len(members) == 1 else _merged(members, fleet) for members in same.values())


def _merged(members: Sequence[FindingGroup], fleet: Fleet) -> FindingGroup:
    first = members[0]
    texts = {fleet.message(member.finding, MAX_KEY_CHARS) for member in members}
    hosts = fleet.ordered(host for member in members for host in member.hosts)
    return FindingGroup(first.finding, first.example, hosts, sum(member.count for member in members), len(texts) > 1)


def without_host_name(finding: Finding) -> dict[str, Any]:
    """The values, without the name of the finding's one host where it is part of a sentence or command."""
    values = finding.values
    if len(finding.hosts) != 1:
        return values
    (host,) = finding.hosts
    texts = {key: value for key, value in values.items() if isinstance(value, str) and host in value}
    if not texts:
        return values  # most have none, and each host's pattern is compiled anew
    name = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-]|\.\w)")
    return {**values, **{key: name.sub("\0", value) for key, value in texts.items()}}


def of_host(finding: Finding, host: str) -> Finding:
    """The finding that says the same of another host, with that one's name in its texts."""
    if finding.hosts == (host,):
        return finding
    values = {
        name: value.replace("\0", host) if isinstance(value, str) else value
        for name, value in without_host_name(finding).items()
    }
    return Finding(finding.template, hosts=(host,), **values)


def _visible_fingerprint(finding: Finding) -> str:
    """The fingerprint of the displayed text: a remedy that differs by the host's own name alone is the same."""
    values = finding.values
    if len(finding.hosts) == 1 and any(
        isinstance(value, str) and finding.hosts[0] in value for value in values.values()
    ):
        bare = without_host_name(finding)
        visible_names = [name for name in values if name in ("observed", "expected") or f"{{{name}" in finding.template]
        values = {**bare, **{name: values[name] for name in visible_names}}
    return _fingerprint(values)


def _fingerprint(values: dict[str, Any]) -> str:
    """Equal for equal values of one template; sets have no order of their own."""
    if any(_is_set(value) for value in values.values()):
        values = {name: sorted(value, key=repr) if _is_set(value) else value for name, value in values.items()}
    return repr(values)


def _is_set(value: Any) -> bool:
    return isinstance(value, (set, frozenset))


def _group(members: Sequence[Finding], fleet: Fleet) -> FindingGroup:
    hosts = fleet.ordered(host for member in members for host in member.hosts)
    return FindingGroup(members[0], members[0], hosts, len(members))


def _with_ranges(groups: Sequence[FindingGroup]) -> list[FindingGroup]:
    alike: dict[tuple[str, tuple[str, ...], str, str | int], list[FindingGroup]] = {}
    for number, group in enumerate(groups):
        values = group.finding.values
        name = next((name for name in RANGE_NAMES if type(values.get(name)) is int), "")
        rest = _fingerprint({key: value for key, value in values.items() if key != name}) if name else number
        alike.setdefault((group.finding.template, group.hosts, name, rest), []).append(group)
    return [members[0] if len(members) == 1 else _joined(members, key[2]) for key, members in alike.items()]


def _joined(members: Sequence[FindingGroup], name: str) -> FindingGroup:
    first = members[0]
    numbers = {member.finding.values[name] for member in members}
    values = {**first.finding.values, name: number_ranges(numbers)}
    finding = Finding(first.finding.template, hosts=first.hosts, **values).as_warning(first.finding.is_warning)
    return FindingGroup(finding, first.example, first.hosts, sum(member.count for member in members))
