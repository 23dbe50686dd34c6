"""Who holds the NPUs' device files open."""

from __future__ import annotations

import os
import pwd

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask


def list_device_users(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the processes that have an NPU open."""
    holders = []
    ticks = os.sysconf("SC_CLK_TCK")
    with open("/proc/uptime") as file:
        uptime = float(file.read().split()[0])
    for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
        npus = set()
        try:
            for fd in os.listdir("/proc/" + pid + "/fd"):
                path = os.readlink("/proc/" + pid + "/fd/" + fd)
                if path.startswith("/dev/davinci") and path[12:].isdigit():
                    npus.add(int(path[12:]))
        except OSError:
            pass
        if not npus:
            continue
        try:
            uid = os.stat("/proc/" + pid).st_uid
            with open("/proc/" + pid + "/stat", errors="replace") as file:
                name, _, rest = file.read().partition(" (")[2].rpartition(") ")
        except OSError:
            continue
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = str(uid)
        age = int(uptime - int(rest.split()[19]) / ticks)
        holders.append({"pid": int(pid), "name": name, "user": user, "seconds": age, "npus": sorted(npus)})
    has_device_files = any(name.startswith("davinci") and name[7:8].isdigit() for name in os.listdir("/dev"))
    return {"there": has_device_files, "holders": holders}


class DeviceUser(msgspec.Struct, frozen=True):
    """A process that has an NPU's device file open."""

    pid: int
    name: str
    user: str
    seconds: int
    """Since it started."""
    npus: tuple[int, ...]


class NpuProcesses(Fact, frozen=True):
    """The processes that have ``/dev/davinci0`` and on open; without root, those of the login user alone.

    Raw output, as JSON::

        {"there": true,
         "holders": [{"pid": 99, "name": "python3", "user": "ann", "seconds": 90, "npus": [0, 3]}]}
    """

    probe = ask(list_device_users, root=True)

    device_users: tuple[DeviceUser, ...]

    def by_pid(self, pid: int) -> DeviceUser | None:
        return next((process for process in self.device_users if process.pid == pid), None)

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuProcesses:
        data = answer.json()
        if not data["there"]:
            raise Absent("the host has no NPU device files")
        holders = msgspec.convert(data["holders"], tuple[DeviceUser, ...])
        return cls(device_users=tuple(sorted(holders, key=lambda process: process.pid)))
