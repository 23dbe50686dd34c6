"""What the collector makes of a kernel log with given messages."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from doctor.engine.fact import Output
from doctor.facts import kernel_log
from doctor.facts.kernel_log import ERROR_LEVEL, KernelLog, read_kernel_log
from tests.facts.answers import read_outputs
from tests.facts.kernel_reports import LEVELS


def escaped(text: str) -> str:
    """As /dev/kmsg shows it: what is not printable, and a backslash, in hexadecimal."""
    return "".join(char if " " <= char < "\x7f" and char != "\\" else f"\\x{ord(char):02x}" for char in text)


def _levelled(line: str) -> tuple[int, str]:
    match = re.match("<([0-7])>", line)
    return (int(match[1]), line[3:]) if match else (LEVELS.get(line, ERROR_LEVEL), line)


def collected_logs(folder: Path, texts: Mapping[str, str | list[str]]) -> dict[str, KernelLog]:
    """By name: what the collector makes of a log with one message or several, each printed three times.

    A message that begins with ``<6>`` has that level, as ``dmesg -r`` prints it.
    """
    logs: dict[str, KernelLog] = {}
    opened = os.open
    file = folder / "kmsg"
    patch = pytest.MonkeyPatch()
    patch.setattr(os, "open", lambda path, *mode: opened(file if path == "/dev/kmsg" else path, *mode))
    real = kernel_log.read_text  # whose functions are those of this machine
    patch.setattr(kernel_log, "read_text", lambda path: "" if path.startswith("/sys/") else real(path))
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    for name, text in texts.items():
        lines = [_levelled(line) for line in ([text] if isinstance(text, str) else text)]
        records = [
            f"{level},{number},{int((uptime - 10 * ago) * 1e6)},-;{escaped(line)}\n"
            for number, (ago, (level, line)) in enumerate((ago, line) for ago in (3, 2, 1) for line in lines)
        ]
        file.write_text("6,1,0,-;Linux version 6.8.0\n" + "".join(records))
        log = read_outputs(KernelLog, one=Output(out=json.dumps(read_kernel_log({}))))
        assert isinstance(log, KernelLog)
        logs[name] = log
    patch.undo()
    return logs
