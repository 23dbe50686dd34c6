"""One setting that changed, in one line. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.language import localized, localized_filled, phrase
from doctor.report.diff.values import ValueChange
from doctor.report.layout.formatting import clean
from doctor.report.layout.host_names import Fleet

MAX_VALUE = 160
"""Characters of a value."""


def change_line(change: ValueChange, fleet: Fleet) -> str:
    """``sysctl net.ipv4.tcp_retries2: 15 -> 7, on all 4 hosts``."""
    subject = f"{category_name(change.category)} {clean(localized_filled(change.name), 200)}"
    where = _where(change.hosts, fleet)
    return f"{subject}{localized(': ')}{_value(change.before)} -> {_value(change.now)}{where}"


def category_name(category: str) -> str:
    """The category for people."""
    names = {
        "code": localized("code"),
        "environment": localized("environment"),
        "firmware": localized("firmware"),
        "interfaces": localized("interfaces"),
        "launch": localized("launch"),
        "libraries": localized("libraries"),
        "limits": localized("limits"),
        "modules": localized("modules"),
        "mounts": localized("mounts"),
        "packages": localized("packages"),
        "shell": localized("shell"),
        "system": localized("system"),
        "drivers": localized("drivers"),
    }
    return names.get(category, category)


def _where(hosts: Sequence[str], fleet: Fleet) -> str:
    if not hosts:
        return ""
    if len(hosts) > 1 and len(hosts) == len(fleet.hosts):
        return localized(", ") + phrase("on all {count} hosts", count=len(hosts))
    return localized(", ") + phrase("on {where}", where=fleet.where(hosts))


def _value(value: str | None) -> str:
    return localized("not there") if value is None else clean(localized_filled(value), MAX_VALUE) or localized("empty")
