"""``--cpu-seconds FILE``: what each test costs of a core, with all processes that it starts, as hosts and servers.

That is its CPU time, or its share of a core for as long as it holds one of the `WORKERS` of that core, whichever is
more. Each worker gets a control group of its own, whose time is read before and after each test. What costs more than
`tests.sampling.COSTLY_SECONDS` is written into FILE, the costliest first, in the form of `tests.sampling.COSTLY`. It
needs root, a mounted controller `cpuacct` or control groups of version 2, and a machine that does nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sampling import COSTLY_SECONDS

WORKERS = 3
"""For each core, as `tests/run` starts them."""
ROOTS = ("/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup")


def root() -> Path:
    """Where the control groups are.

    Raises: pytest.UsageError: this system has none that count CPU time.
    """
    for folder in map(Path, ROOTS):
        if (folder / "cpuacct.usage").exists() or (folder / "cgroup.controllers").exists():
            return folder
    raise pytest.UsageError("--cpu-seconds needs control groups that count CPU time")


def seconds_of(group: Path) -> float:
    """CPU seconds of all processes that were in a control group."""
    if (group / "cpuacct.usage").exists():
        return int((group / "cpuacct.usage").read_text()) / 1e9
    fields = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(fields["usage_usec"]) / 1e6


class CpuSeconds:
    """A pytest plugin."""

    def __init__(self, file: str) -> None:
        self.file = Path(file).resolve()
        self.parent = root() / f"doctor-tests-{os.getpid()}-{int(time.time())}"
        self.group = self.parent

    def worker_group(self) -> Path:
        """The control group of this process, made when its first test begins."""
        group = self.parent / str(os.getpid())
        if group != self.group:
            group.mkdir(parents=True)
            (group / "cgroup.procs").write_text(str(os.getpid()))
            self.group = group
        return group

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        group = self.worker_group()
        before, began = seconds_of(group), time.monotonic()
        yield
        cost = max(seconds_of(group) - before, (time.monotonic() - began) / WORKERS)
        with self.file.with_suffix(f".{os.getpid()}").open("a", encoding="utf-8") as stream:
            stream.write(f"{cost:.1f} {item.nodeid}\n")

    def pytest_sessionfinish(self) -> None:
        parts = [part for part in self.file.parent.glob(f"{self.file.stem}.*") if part.suffix[1:].isdigit()]
        lines = [line for part in parts for line in part.read_text(encoding="utf-8").splitlines()]
        kept = [line for line in lines if float(line.split()[0]) >= COSTLY_SECONDS]
        self.file.write_text("".join(f"{line}\n" for line in sorted(kept, key=lambda line: -float(line.split()[0]))))
        for part in parts:
            part.unlink()
