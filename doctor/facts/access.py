"""Whether the user that the doctor logs in as, and that the job runs as, may use the NPUs."""

from __future__ import annotations

import grp
import os
import pwd
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask
from doctor.remote.runtime.reading import matching_paths


def _name(table: Any, number: int) -> str:
    try:
        return str(table(number)[0])
    except KeyError:
        return str(number)


def list_device_files(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the NPU driver's device files, and the user and the groups that it runs as."""
    files = {}
    others = ["/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"]
    for path in matching_paths("/dev/davinci[0-9]*") + others:
        try:
            info = os.stat(path)
        except OSError:
            continue
        files[path] = {
            "mode": "%03o" % (info.st_mode & 0o777),
            "user": _name(pwd.getpwuid, info.st_uid),
            "group": _name(grp.getgrgid, info.st_gid),
            "open": os.access(path, os.R_OK | os.W_OK),
        }
    numbers = sorted(set(os.getgroups()) | {os.getegid()})
    groups = [_name(grp.getgrgid, number) for number in numbers]
    return {"uid": os.geteuid(), "user": _name(pwd.getpwuid, os.geteuid()), "groups": groups, "files": files}


class DeviceFile(msgspec.Struct, frozen=True):
    """One of the driver's device files."""

    mode: str
    """Octal, such as 660."""
    user: str
    group: str
    open: bool
    """We may read and write it."""


class JobAccess(Fact, frozen=True):
    """Who we are where the job runs, and which of the NPU driver's device files we may open.

    Raw output, as JSON::

        {"uid": 1000, "user": "ann", "groups": ["ann", "HwHiAiUser"],
         "files": {"/dev/davinci0": {"mode": "660", "user": "HwHiAiUser", "group": "HwHiAiUser", "open": true}}}
    """

    probe = ask(list_device_files, job=True)

    uid: int
    user: str
    groups: tuple[str, ...]
    files: dict[str, DeviceFile]
    """By path: ``/dev/davinci0`` and on, and the driver's own."""

    @property
    def denied_files(self) -> tuple[str, ...]:
        """The device files that we may not open."""
        return tuple(path for path, file in self.files.items() if not file.open)

    @classmethod
    def read(cls, answer: ProbeAnswer) -> JobAccess:
        data = answer.json()
        if not data["files"]:
            raise Absent("there are no NPU device files where the job runs")
        return msgspec.convert(data, cls)
