"""What the control groups of a job's processes let them have: memory, processes and CPUs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.shell_quote import quote_value
from doctor.engine.texts import filled
from doctor.facts.host_settings import count_listed
from doctor.remote.runtime.reading import read_text

UNLIMITED = 1 << 60
"""From here on a number stands for no limit: version 1 shows the largest one that it can hold, 9223372036854771712."""


FILES = {
    "": "memory.max memory.high memory.current pids.max cpu.max cpuset.cpus.effective",
    "memory": "memory.limit_in_bytes memory.usage_in_bytes",
    "pids": "pids.max",
    "cpu": "cpu.cfs_quota_us cpu.cfs_period_us",
    "cpuset": "cpuset.effective_cpus",
}
"""By controller, of version 2 under the empty name: the files that hold its limits."""
CACHE = ("active_file", "inactive_file", "total_active_file", "total_inactive_file")
"""Of memory.stat: what can be given back at any time."""


def _mounts() -> list[Any]:
    """The controllers of each mounted hierarchy, the root that it shows, and where it is mounted."""
    mounts = []
    for line in read_text("/proc/self/mountinfo", 1 << 20).strip().splitlines():
        fields = line.split(" ")
        end = fields.index("-") if "-" in fields else len(fields)
        if len(fields) > end + 3 and fields[end + 1] in ("cgroup", "cgroup2"):
            names = fields[end + 3].split(",") if fields[end + 1] == "cgroup" else [""]
            mounts.append((names, fields[3], fields[4]))
    return mounts


def _limits(folder: str, name: str) -> dict[str, str]:
    """The files of one group that can be read; of memory that is limited, the cache as well."""
    values = {file: read_text(folder + "/" + file).strip() for file in FILES[name].split()}
    values = {file: text for file, text in values.items() if text}
    limit = values.get("memory.limit_in_bytes", "")
    limits = [limit, values.get("memory.max", ""), values.get("memory.high", "")]
    if any(text.isdigit() and int(text) < 1 << 60 for text in limits):
        statistics = [row.split() for row in read_text(folder + "/memory.stat", 65536).strip().splitlines()]
        kept = {row[0]: int(row[1]) for row in statistics if len(row) == 2 and row[0] in CACHE}
        prefix = "total_" if "total_active_file" in kept else ""
        values["cache"] = str(kept.get(prefix + "active_file", 0) + kept.get(prefix + "inactive_file", 0))
    return values


def read_control_groups(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the limits of this process's control groups and of those above them, as far as they show."""
    mounts = _mounts()
    levels: list = []  # type: ignore[type-arg]
    hidden = []
    for line in read_text("/proc/self/cgroup", 65536).strip().splitlines():
        parts = line.split(":", 2)
        for name in parts[1].split(",") if len(parts) == 3 else ():
            if name not in FILES:
                continue
            places = [(root, point) for names, root, point in mounts if name in names]
            if not places:
                hidden.append(name)
                continue
            root, point = places[0]
            # A mount shows the tree from its root on; a process outside of it, at or above that root, is at the top.
            inner = parts[2][len(root.rstrip("/")) :] if (parts[2] + "/").startswith(root.rstrip("/") + "/") else ""
            steps = [step for step in inner.split("/") if step and step != ".."][:32]
            for depth in range(len(steps), -1, -1):
                folder = "/".join([point, *steps[:depth]])
                values = _limits(folder, name)
                if values:
                    levels.append({"path": folder, "values": values})
    return {
        "levels": levels[:256],
        "hidden": hidden,
        "allowed": len(os.sched_getaffinity(0)),
        "online": os.cpu_count() or 0,
        "slurm_step": os.environ.get("SLURM_STEP_ID", "").isdigit(),
    }


class _Level(msgspec.Struct, frozen=True):
    """One control group, and the texts of its files."""

    path: str
    values: dict[str, str]


class _Answer(msgspec.Struct, frozen=True):
    """What `read_control_groups` returns."""

    levels: list[_Level]
    hidden: list[str]
    allowed: int
    online: int
    slurm_step: bool


class MemoryBound(msgspec.Struct, frozen=True):
    """One control group's limit of memory, in bytes."""

    setting: str
    """The path of the file that sets it."""
    limit: int
    used: int
    """Without the cache of files, which the kernel gives up when memory runs short."""

    @property
    def available(self) -> int:
        return max(0, self.limit - self.used)


class ControlGroup(Fact, frozen=True):
    """The limits of the control groups that hold a process of the job: its own, and those above it.

    In a container they are those that can be seen inside. A step of Slurm that doctor starts has limits of its own: then
    those of the job count.

    Raw output, as JSON::

        {"levels": [{"path": "/sys/fs/cgroup", "values": {"memory.max": "68719476736", "memory.high": "max",
                     "memory.current": "1073741824", "cache": "524288000", "pids.max": "max", "cpu.max": "400000 100000"}}],
         "hidden": [], "allowed": 128, "online": 128, "slurm_step": false}
    """  # noqa: E501

    probe = ask(read_control_groups, job=True)

    memory: tuple[MemoryBound, ...]
    """Innermost first."""
    processes: int | None
    """Processes and threads that the narrowest one may have; None for no limit."""
    processes_setting: str
    """The path of the file that sets it; empty for no limit."""
    quota: float | None
    """CPUs whose time they may use; None for no limit."""
    quota_setting: str
    allowed_cpus: int
    """CPUs on which a process may run, by the control group or by its own affinity."""
    online_cpus: int
    """CPUs that the host has."""

    @property
    def usable_cpus(self) -> float:
        return self.allowed_cpus if self.quota is None else min(self.quota, self.allowed_cpus)

    @classmethod
    def read(cls, answer: ProbeAnswer) -> ControlGroup:
        data = msgspec.convert(answer.json(), _Answer)
        if not data.levels:
            raise Absent("the control groups of the job's processes are not shown: they are not mounted")
        levels = [level for level in data.levels if not (data.slurm_step and "/step_" in level.path)]
        processes = _smallest((_number(level.values.get("pids.max", "")), f"{level.path}/pids.max") for level in levels)
        quota = _smallest(_quota(level) for level in levels)
        sets = [text for level in levels for file, text in level.values.items() if file.startswith("cpuset.")]
        allowed = min(filter(None, map(count_listed, sets)), default=data.allowed) if data.slurm_step else data.allowed
        return cls(
            memory=tuple(bound for level in levels for bound in _memory(level)),
            processes=None if processes is None else int(processes[0]),
            processes_setting=processes[1] if processes else "",
            quota=quota[0] if quota else None,
            quota_setting=quota[1] if quota else "",
            allowed_cpus=allowed,
            online_cpus=data.online,
            # A kernel of version 2 alone names no controllers; beside version 1, its own tree has no limits.
            unread={name: "its control group is not shown: it is not mounted" for name in data.hidden if name},
        )


UNIT_PROPERTIES = {
    "pids.max": "TasksMax",
    "memory.max": "MemoryMax",
    "memory.high": "MemoryHigh",
    "memory.limit_in_bytes": "MemoryMax",
}
"""Of a unit of systemd, the property that sets a file of its control group: systemd.resource-control(5)."""


def unlimited_command(setting: str) -> str:
    """What root types on the host so that the file of a control group sets no limit.

    >>> unlimited_command("/sys/fs/cgroup/user.slice/pids.max"), unlimited_command("/sys/fs/cgroup/job_7/pids.max")
    ('systemctl set-property user.slice TasksMax=infinity', 'echo max > /sys/fs/cgroup/job_7/pids.max')
    """
    path, _, file = setting.rpartition("/")
    unit = path.rpartition("/")[2]
    if file in UNIT_PROPERTIES and unit.endswith((".slice", ".service")):
        return f"systemctl set-property {quote_value(unit)} {UNIT_PROPERTIES[file]}=infinity"
    return f"echo {'-1' if file == 'memory.limit_in_bytes' else 'max'} > {quote_value(setting)}"


def _smallest(limits: Iterable[tuple[float | None, str]]) -> tuple[float, str] | None:
    """The narrowest limit and the file that sets it; None where there is no limit."""
    return min(((limit, setting) for limit, setting in limits if limit is not None), default=None)


def _number(text: str) -> int | None:
    """A limit; None for ``max`` and for numbers that stand for none. Raises: Unreadable for anything else."""
    if text in ("", "max", "-1"):
        return None
    if not (text.isascii() and text.isdecimal()):
        raise Unreadable(filled("not a limit of a control group: {0}", strip_control_chars(text, 40)))
    return int(text) if len(text) < 20 and int(text) < UNLIMITED else None


def _memory(level: _Level) -> list[MemoryBound]:
    used = _number(level.values.get("memory.current", "") or level.values.get("memory.usage_in_bytes", "")) or 0
    used = max(0, used - (_number(level.values.get("cache", "")) or 0))
    limits = [
        (file, _number(level.values.get(file, ""))) for file in ("memory.max", "memory.high", "memory.limit_in_bytes")
    ]
    return [MemoryBound(f"{level.path}/{file}", limit, used) for file, limit in limits if limit is not None]


def _quota(level: _Level) -> tuple[float | None, str]:
    """CPUs' worth of time that a group may use, and the file that sets it."""
    file = "cpu.max" if "cpu.max" in level.values else "cpu.cfs_quota_us"
    fields = level.values.get(file, "").split() or [""]
    period = _number(fields[1] if len(fields) > 1 else level.values.get("cpu.cfs_period_us", "")) or 0
    time = _number(fields[0])
    return (time / period if time and period else None), f"{level.path}/{file}"
