"""What the collector makes of a kernel log with given messages."""

from __future__ import annotations

import json
import os
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


def collected_logs(folder: Path, texts: dict[str, str]) -> dict[str, KernelLog]:
    """By name: what the collector makes of a log with these lines alone, printed three times in half a minute."""
    logs: dict[str, KernelLog] = {}
    opened = os.open
    file = folder / "kmsg"
    patch = pytest.MonkeyPatch()
    patch.setattr(os, "open", lambda path, *mode: opened(file if path == "/dev/kmsg" else path, *mode))
    real = kernel_log.read_text  # whose functions are those of this machine
    patch.setattr(kernel_log, "read_text", lambda path: "" if path.startswith("/sys/") else real(path))
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    for name, text in texts.items():
        lines = text.splitlines()
        records = [
            f"{LEVELS.get(line, ERROR_LEVEL)},{number},{int((uptime - 10 * ago) * 1e6)},-;{escaped(line)}\n"
            for number, (ago, line) in enumerate((ago, line) for ago in (3, 2, 1) for line in lines)
        ]
        file.write_text("6,1,0,-;Linux version 6.8.0\n" + "".join(records))
        log = read_outputs(KernelLog, one=Output(out=json.dumps(read_kernel_log({}))))
        assert isinstance(log, KernelLog)
        logs[name] = log
    patch.undo()
    return logs
