"""What one process of the job may use, by the limits that it is started with."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer, Unreadable, read
from doctor.engine.quantities import GIB, MIB, bytes_text, span_text
from doctor.engine.texts import filled
from doctor.facts.slurm import JobServices, raising
from doctor.job import LaunchConfig


class Limit(msgspec.Struct, frozen=True):
    """Soft and hard limit; None is unlimited."""

    soft: int | None
    hard: int | None

    def allows(self, required: int) -> bool:
        return self.soft is None or self.soft >= required

    def can_be_raised_to(self, required: int) -> bool:
        """A process may raise its own limit so far."""
        return self.hard is None or self.hard >= required

    def set_to(self, value: str, unit: int) -> Limit:
        """After ``ulimit`` with the value, which fails above the hard limit."""
        soft = int(value) * unit if value.isdecimal() else self.hard if value == "hard" else None
        is_refused = self.hard is not None and (soft is None or soft > self.hard)
        return self if is_refused else Limit(soft, self.hard)

    def within(self, daemon: Limit, is_kept: bool) -> Limit:
        """Of a task whose daemon has other limits; ``is_kept``: the daemon's own, also the soft one."""
        lower = [number for number in (self.soft, daemon.hard) if number is not None]
        return Limit(daemon.soft if is_kept else min(lower, default=None), daemon.hard)


NO_LIMIT = Limit(None, None)
FILE_SIZE, CPU_TIME, SIGNALS, MEMLOCK = "file size", "cpu time", "pending signals", "locked memory"
STACK, DATA, ADDRESS_SPACE = "stack size", "data size", "address space"
OTHERS = {
    "core file size": ("c", "core"),
    STACK: ("s", "stack"),
    FILE_SIZE: ("f", "fsize"),
    CPU_TIME: ("t", "cpu"),
    DATA: ("d", "data"),
    ADDRESS_SPACE: ("v", "as"),
    SIGNALS: ("i", "sigpending"),
}
"""By the kernel's name: the letter of bash(1), "ulimit", and the item of limits.conf(5), both in KiB, or in `UNITS`."""
UNITS = {CPU_TIME: (1, 60), SIGNALS: (1, 1)}
ANY = 1 << 63
NEEDS = {
    FILE_SIZE: (GIB // 16, 4 * GIB),
    CPU_TIME: (60, ANY),
    STACK: (64 << 10, 512 << 10),
    DATA: (260 * MIB, 4 * GIB),
    ADDRESS_SPACE: (800 * MIB, 4 * GIB),
}
"""Bytes or seconds: no rank of PyTorch runs with less than the first, and less than the second is doubtful."""


MIN_FILES, FILES_PER_RANK, ADVISED_FILES = 16384, 16, 65535
FILES_BESIDE_SOCKETS = 23
"""A rank has more files open than that without any connection."""


def needed_files(ranks: int) -> tuple[int, int]:
    """How many open files rank 0 needs at least, and how many are not few, for a job of so many ranks.

    >>> needed_files(8), needed_files(2048)
    ((31, 16384), (2071, 32768))
    """
    return ranks + FILES_BESIDE_SOCKETS, min(ADVISED_FILES, max(MIN_FILES, FILES_PER_RANK * ranks))


def low_limit(name: str, limit: Limit, enough: int = 0) -> tuple[bool, dict[str, str]] | None:
    """None where it suffices; else whether a rank may live with it, and the values of a finding.

    ``enough``: in place of what `NEEDS` says.
    """
    if limit.soft is None or limit.soft >= (enough or NEEDS[name][1]):
        return None
    text = span_text if name == CPU_TIME else bytes_text
    hard = "unlimited" if limit.hard is None else text(limit.hard)
    values = {"observed": text(limit.soft), "expected": "no limit", "hard": hard}
    return limit.allows(NEEDS[name][0]), {**values, "case": "Job" if limit.hard is None else "Host"}


class ResourceLimits(Fact, frozen=True):
    """The limits of a session on the host, or of a process started in the job's container.

    A job that a scheduler or service starts gets that one's limits, which may differ.

    Raw output, from ``/proc/self/limits``::

        Limit                     Soft Limit           Hard Limit           Units
        Max processes             127235               127235               processes
        Max open files            1024                 1048576              files
        Max locked memory         65536                unlimited            bytes
    """

    probe = read("/proc/self/limits", job=True)

    nofile: Limit
    """Open files."""
    memlock: Limit
    """Locked memory, in bytes."""
    nproc: Limit
    """Processes and threads of the user."""
    others: dict[str, Limit] = {}
    """Those of `OTHERS` that the kernel has, by the kernel's name."""

    def of_job(self, launch: LaunchConfig, services: JobServices | None = None) -> ResourceLimits:
        """With what the job script sets, in units of bash(1), "ulimit", of what the service that starts the job has.

        Slurm gives its tasks the soft limits of the shell that starts srun, up to its own hard ones: slurm.conf(5),
        "PropagateResourceLimits"; measured with Slurm 22.05. What another service starts has that one's.
        """

        def after(letter: str, limit: Limit, unit: int = 1) -> Limit:
            return limit.set_to(launch.limits[letter], unit) if letter in launch.limits else limit

        others = {
            name: after(letter, self.others.get(name, NO_LIMIT), UNITS.get(name, (1024,))[0])
            for name, (letter, _) in OTHERS.items()
        }
        nofile, memlock = self.nofile, self.memlock
        if services and (service := services.starting(launch)):
            of_service = [_parse_limit(services.limits[service], f"Max {name}") for name in ("open files", MEMLOCK)]
            if service != "slurmd":
                nofile, memlock = of_service
        nofile, nproc, memlock = after("n", nofile), after("u", self.nproc), after("l", memlock, 1024)
        if services and service == "slurmd":
            nofile = nofile.within(of_service[0], "NOFILE" in services.kept)
            memlock = memlock.within(of_service[1], "MEMLOCK" in services.kept)
        return ResourceLimits(nofile=nofile, memlock=memlock, nproc=nproc, others=others)

    def service_values(
        self, kind: Literal["NOFILE", "MEMLOCK"], expected: str, launch: LaunchConfig, services: JobServices | None
    ) -> dict[str, str]:
        """Values of a finding where the service that starts the job makes a limit what it is; empty where none does.

        ``expected``: the limit that it should have.
        """
        of_login, of_job = (getattr(self.of_job(launch, source), kind.lower()) for source in (None, services))
        service = services.starting(launch) if services and of_job != of_login else ""
        return {"service": service, "raising": raising(service, kind, expected)} if service else {}

    @classmethod
    def read(cls, answer: ProbeAnswer) -> ResourceLimits:
        text = answer.text("/proc/self/limits")
        return cls(
            nofile=_parse_limit(text, "Max open files"),
            memlock=_parse_limit(text, f"Max {MEMLOCK}"),
            nproc=_parse_limit(text, "Max processes"),
            others={name: _parse_limit(text, f"Max {name}") for name in OTHERS if name in text},
        )


def _parse_limit(text: str, name: str) -> Limit:
    match = re.search(rf"^{name}\s+([0-9]{{1,20}}|unlimited)\s+([0-9]{{1,20}}|unlimited)\s", text, re.M | re.A)
    if not match:
        raise Unreadable(filled("/proc/self/limits: no line {0} with two values", f"{name!r}"))
    soft, hard = (None if value == "unlimited" else int(value) for value in match.groups())
    return Limit(soft, hard)


class RdmaAdapters(Fact, frozen=True):
    """The host's RDMA adapters (InfiniBand or RoCE), by name.

    Raw output, from ``/sys/class/infiniband/mlx5_0/node_guid``::

        0c42:a103:0065:1f2e
    """

    probe = read("/sys/class/infiniband/*/node_guid")

    names: tuple[str, ...]

    def __bool__(self) -> bool:
        """The host has one."""
        return bool(self.names)

    @classmethod
    def read(cls, answer: ProbeAnswer) -> RdmaAdapters:
        return cls(names=tuple(path.split("/")[4] for path in answer))
