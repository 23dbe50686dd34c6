"""What the collector makes of a kernel log with given messages."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from doctor.engine.fact import Output
from doctor.facts import kernel_log
from doctor.facts.kernel_log import ERROR_LEVEL, KernelLog, read_kernel_log
from doctor.remote.runtime.reading import read_text
from tests.facts.answers import read_outputs
from tests.facts.kernel_reports import LEVELS


def escaped(text: str) -> str:
    """As /dev/kmsg shows it: what is not printable, and a backslash, in hexadecimal."""
    return "".join(char if " " <= char < "\x7f" and char != "\\" else f"\\x{ord(char):02x}" for char in text)


def _levelled(text: str, level: int) -> tuple[int, str]:
    match = re.match("<([0-7])>", text)
    return (int(match[1]), text[3:]) if match else (LEVELS.get(text, level), text)


def collected_logs(folder: Path, texts: dict[str, list[str]], level: int = ERROR_LEVEL) -> dict[str, KernelLog]:
    """By name: what the collector makes of a log with these messages alone, printed three times in half a minute.

    A message that begins with ``<6>`` has that level, as ``dmesg -r`` prints it.
    """
    logs: dict[str, KernelLog] = {}

    def without_devices(path: str) -> str:
        """Without the functions of this machine."""
        return "" if path.startswith("/sys/") else read_text(path)

    opened = os.open
    file = folder / "kmsg"
    patch = pytest.MonkeyPatch()
    patch.setattr(os, "open", lambda path, *mode: opened(file if path == "/dev/kmsg" else path, *mode))
    patch.setattr(kernel_log, "read_text", without_devices)
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    for name, messages in texts.items():
        printed = [_levelled(text, level) for text in messages]
        records = [
            f"{level},{number},{int((uptime - 10 * ago) * 1e6)},-;{escaped(text)}\n"
            for number, (ago, (level, text)) in enumerate((ago, pair) for ago in (3, 2, 1) for pair in printed)
        ]
        file.write_text("6,1,0,-;Linux version 6.8.0\n" + "".join(records))
        log = read_outputs(KernelLog, one=Output(out=json.dumps(read_kernel_log({}))))
        assert isinstance(log, KernelLog)
        logs[name] = log
    patch.undo()
    return logs
