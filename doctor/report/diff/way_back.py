"""The command that sets a changed setting back to what it was, where there is one. Pure."""

from __future__ import annotations

import re
import shlex

from doctor.report.diff.values import ValueChange

_SYSCTL = re.compile(r"[a-z0-9][a-z0-9_./-]{1,120}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,80}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,80}")
_VALUE = re.compile(r"[A-Za-z0-9_./:,%@+= -]{0,160}")
"""A value that a command repeats: of hosts, so without what a shell or a terminal reads as anything else."""


def way_back(change: ValueChange) -> str:
    """The command, or the empty string: what a host printed and a shell might read otherwise is in none.

    >>> way_back(ValueChange("sysctl", "net.ipv4.tcp_retries2", "15", "7", ("n1",)))
    'sysctl -w net.ipv4.tcp_retries2=15'
    >>> way_back(ValueChange("environment", "NCCL_IB_DISABLE", None, "1", ("n1",)))
    'unset NCCL_IB_DISABLE'
    >>> way_back(ValueChange("packages", "libc6", "2.36-9", "$(id)", ("n1",)))
    'apt-get install libc6=2.36-9 || dnf install libc6-2.36-9'
    >>> way_back(ValueChange("sysctl", "kernel.core_pattern", "|/bin/x", "core", ("n1",)))
    ''
    """
    name, before = change.name, change.before
    if before is not None and not _VALUE.fullmatch(before):
        return ""
    if change.category == "sysctl" and before and _SYSCTL.fullmatch(name):
        return f"sysctl -w {name}={shlex.quote(before)}"
    if change.category in ("environment", "shell") and _VARIABLE.fullmatch(name):
        return f"unset {name}" if before is None else f"export {name}={shlex.quote(before)}"
    if change.category == "packages" and _NAME.fullmatch(name) and before and _NAME.fullmatch(before.replace(":", ".")):
        return f"apt-get install {name}={before} || dnf install {name}-{before}"
    if change.category == "interfaces" and _NAME.fullmatch(name):
        size = re.match(r"mtu (\d{1,6})\b", before or "")
        return f"ip link set {name} mtu {size[1]}" if size else ""
    return ""
