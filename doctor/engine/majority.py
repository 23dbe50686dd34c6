"""What most hosts of a fleet have, and which hosts differ: the norm of every *-differs check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from doctor.engine.check import Skip
from doctor.engine.result import Finding


def differing(values: Mapping[str, Any], template: str, **more: Any) -> Iterator[Finding]:
    """A finding for each value that fewer hosts have than the commonest one; for a tie, one that blames all hosts.

    The template may name ``observed``, ``expected``, ``count`` (hosts that have ``expected``) and ``total``.
    Raises: Skip for a fleet of one.
    """
    if len(values) < 2:
        raise Skip("a single host cannot be compared")
    groups: dict[Any, list[str]] = {}
    for host, value in values.items():
        groups.setdefault(value, []).append(host)
    ranked = sorted(groups.items(), key=lambda group: (-len(group[1]), str(group[0])))
    if len(ranked) == 1:
        return
    expected, most = ranked[0]
    if len(ranked[1][1]) == len(most):
        hosts_by_value = {str(value): hosts for value, hosts in ranked}
        yield Finding(
            "the hosts differ, and no value has a majority: {groups}; expected one",
            hosts=list(values),
            groups=hosts_by_value,
            **more,
        )
        return
    for observed, hosts in ranked[1:]:
        yield Finding(
            template, hosts=hosts, observed=observed, expected=expected, count=len(most), total=len(values), **more
        )
