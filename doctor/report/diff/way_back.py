"""The command that sets a changed setting back to what it was, where there is one. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from doctor.report.diff.values import ValueChange

_SYSCTL = re.compile(r"[a-z0-9][a-z0-9_./-]{1,120}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,80}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,80}")
_VALUE = re.compile(r"[A-Za-z0-9_./:,%@+= -]{0,160}")
"""A value that a command repeats: of hosts, so without what a shell or a terminal reads as anything else."""


_LIBRARY = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.+-]{0,80}\.so[0-9.]{0,20}) [0-9a-f]{8,64}")


def way_back(change: ValueChange, peer: str = "") -> str:
    """The command, or the empty string: what a host printed and a shell might read otherwise is in none.

    ``peer``: a host of the run that did not change.

    >>> way_back(ValueChange("sysctl", "net.ipv4.tcp_retries2", "15", "7", ("n1",)))
    'sysctl -w net.ipv4.tcp_retries2=15'
    >>> way_back(ValueChange("environment", "NCCL_IB_DISABLE", None, "1", ("n1",)))
    'unset NCCL_IB_DISABLE'
    >>> way_back(ValueChange("packages", "libc6", "2.36-9", "$(id)", ("n1",)))
    'apt-get install libc6=2.36-9 || dnf install libc6-2.36-9'
    >>> way_back(ValueChange("python", "transformers", None, "4.57.1", ("n1",)))
    'python3 -m pip uninstall -y transformers'
    >>> way_back(ValueChange("libraries", "libnccl.so", "libnccl.so.2 de79ef7d3988", "libnccl.so.2 a", ("n2",)), "n1")
    'f=$(find /usr /opt -name libnccl.so.2 | head -n 1) && scp -p n1:$f $f'
    >>> way_back(ValueChange("sysctl", "kernel.core_pattern", "|/bin/x", "core", ("n1",)))
    ''
    """
    name, before = change.name, change.before
    if before is not None and not _VALUE.fullmatch(before):
        return ""
    if change.category in ("environment", "shell") and _VARIABLE.fullmatch(name):
        return f"unset {name}" if before is None else f"export {name}={shlex.quote(before)}"
    if before is None and _NAME.fullmatch(name):
        return _ADDED.get(change.category, "").format(name)
    set_again = _BY_CATEGORY.get(change.category)
    return set_again(name, before, peer) if before and set_again else ""


def _sysctl(name: str, before: str, _: str) -> str:
    return f"sysctl -w {name}={shlex.quote(before)}" if _SYSCTL.fullmatch(name) else ""


def _package(name: str, before: str, _: str) -> str:
    is_version = _NAME.fullmatch(name) and _NAME.fullmatch(before.replace(":", "."))
    return f"apt-get install {name}={before} || dnf install {name}-{before}" if is_version else ""


def _python(name: str, before: str, _: str) -> str:
    is_version = _NAME.fullmatch(name) and _NAME.fullmatch(before)
    return f"python3 -m pip install {name}=={before}" if is_version else ""


def _library(_: str, before: str, peer: str) -> str:
    library = _LIBRARY.fullmatch(before)
    is_copied = library and _NAME.fullmatch(peer)
    return f"f=$(find /usr /opt -name {library[1]} | head -n 1) && scp -p {peer}:$f $f" if library and is_copied else ""


def _interface(name: str, before: str, _: str) -> str:
    size = re.match(r"mtu (\d{1,6})\b", before)
    return f"ip link set {name} mtu {size[1]}" if size and _NAME.fullmatch(name) else ""


def _system(name: str, before: str, _: str) -> str:
    has_file = name == "transparent huge pages" and before in ("always", "madvise", "never")
    return f"echo {before} > /sys/kernel/mm/transparent_hugepage/enabled" if has_file else ""


_ADDED = {
    "packages": "apt-get remove {0} || dnf remove {0}",
    "python": "python3 -m pip uninstall -y {0}",
}
"""What takes away what was not there before."""
_BY_CATEGORY: Mapping[str, Callable[[str, str, str], str]] = {
    "sysctl": _sysctl,
    "packages": _package,
    "python": _python,
    "libraries": _library,
    "interfaces": _interface,
    "system": _system,
}
