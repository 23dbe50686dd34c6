"""Memory of a host: how much is free, and the shared part in /dev/shm."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Set
from typing import NamedTuple

import msgspec

from doctor.engine.evaluate import read_fact
from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, Unreadable, ask, read
from doctor.engine.quantities import GIB, KIB, MIB
from doctor.engine.record import HostRecord
from doctor.engine.texts import beginning, filled
from doctor.facts.gpu import GpuCards
from doctor.facts.job_paths import JobProgram
from doctor.facts.npu import NpuInventory
from doctor.job import LaunchConfig
from doctor.job.launch_line.options import values_of

CONTAINER_DEFAULT_SHM = (64 * MIB, 64_000 * KIB)
"""Of Docker, containerd and the kubelet; of podman, which counts in thousands."""
SHM_PER_RANK = 128 * MIB
SHM_OF_NCCL = 9.2 * MIB
"""Of each rank that hands on numbers through it: NCCL's error names segments of 9637888 bytes."""
MIN_SHM = GIB


def accelerator_count(npus: NpuInventory | None, gpus: GpuCards | None) -> int:
    """NPUs of a host, else its GPUs; 0 where it has none that is known."""
    return len(npus.devices) if npus else gpus.pci if gpus else 0


def device_count(record: HostRecord) -> int:
    """The same, of what a host has answered."""
    npus, gpus = read_fact(record, NpuInventory), read_fact(record, GpuCards)
    return accelerator_count(
        npus if isinstance(npus, NpuInventory) else None, gpus if isinstance(gpus, GpuCards) else None
    )


def host_rank_count(launch: LaunchConfig, devices: int) -> int:
    """Ranks on one host: as the job is launched, else one a device; 0 when nothing tells."""
    ranks_per_host = launch.ranks_per_host
    return (max(ranks_per_host.values(), default=0) if isinstance(ranks_per_host, dict) else ranks_per_host) or devices


def required_shm(ranks: int) -> int:
    """Bytes of /dev/shm for so many ranks on one host: 128 MiB a rank, and never less than 1 GiB."""
    return max(MIN_SHM, SHM_PER_RANK * ranks)


def has_loader_workers(program: JobProgram, line: str) -> bool:
    """Whether a DataLoader of the program is known to have workers, as its launch line asks.

    >>> has_loader_workers(JobProgram("t.py", "there", workers=["workers=0"]), "torchrun t.py --workers 4")
    True
    """
    pairs = [text.split("=", 1) for text in program.workers]
    numbers = [(values_of(line, [name]) if name else [])[-1:] or [default] for name, default in pairs]
    return any(number.strip("0").isdecimal() for (number,) in numbers)


class ShmUse(NamedTuple):
    """What the ranks of one host use /dev/shm for."""

    ranks: int
    segments: int
    """That NCCL may make: none between GPUs that reach each other's memory (src/transport/p2p.cc), as those behind one
    NVSwitch do unless the job says otherwise; for the network each rank has its pool of operations there (proxy.cc,
    ncclProxyProgressCreate). What HCCL keeps there is not known."""
    has_workers: bool
    """Of data loaders."""

    @classmethod
    def of(
        cls, npus: NpuInventory | None, gpus: GpuCards | None, program: JobProgram | None, launch: LaunchConfig
    ) -> ShmUse:
        ranks = host_rank_count(launch, accelerator_count(npus, gpus))
        is_on_one_host = launch.world_size is not None and launch.world_size <= ranks
        has_access = gpus is not None and gpus.switches and launch.env.get("NCCL_P2P_DISABLE") != "1"
        uses_it = not npus and gpus is not None and gpus.pci > 0 and ranks > 1 and not (is_on_one_host and has_access)
        has_workers = program is not None and has_loader_workers(program, launch.launch_line)
        return cls(ranks, ranks if uses_it else 0, has_workers)

    @property
    def required(self) -> int:
        """Bytes: see `required_shm`."""
        return required_shm(self.ranks)

    def fails_with(self, room: int) -> bool:
        """Whether the job is known to fail with ``room`` bytes: its data loaders have workers, or NCCL's segments do
        not fit. A job of Gloo without workers runs with 4 KiB, and without the folder (measured).

        >>> ShmUse(8, 8, False).fails_with(64 * MIB), ShmUse(8, 0, False).fails_with(64 * MIB)
        (True, False)
        """
        return self.has_workers or self.segments * SHM_OF_NCCL > room


def measure_shm(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: size and free bytes of /dev/shm, and the files that fit in; -1: there is no such limit."""
    if not os.path.isdir("/dev/shm"):
        return {"there": False}
    usage = os.statvfs("/dev/shm")
    files_free = usage.f_favail if usage.f_files else -1
    sizes = {"size": usage.f_blocks * usage.f_frsize, "free": usage.f_bavail * usage.f_frsize}
    return {"there": True, "files_free": files_free, **sizes}


class SharedMemory(Fact, frozen=True):
    """How large /dev/shm is where the job runs, and how much of it is free.

    Raw output, as JSON::

        {"there": true, "size": 67108864, "free": 67104768}
    """

    probe = ask(measure_shm, job=True)

    size: int
    """Bytes; 0 stands for a /dev/shm without a limit of its own."""
    free: int
    """Bytes."""
    there: bool = True
    """Whether the folder exists; without it ``size`` is 0."""
    files_free: int = -1
    """How many files fit in; -1: as many as there is memory for."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SharedMemory:
        data = answer.json()
        return msgspec.convert(data if data["there"] else {"size": 0, "free": 0, **data}, cls)

    @property
    def limited(self) -> bool:
        return self.size > 0

    @property
    def is_container_default(self) -> bool:
        """The size is what a container gets if nothing is asked for."""
        return self.size in CONTAINER_DEFAULT_SHM


def list_idle_segments(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: the files of /dev/shm older than 10 minutes that no process has open or mapped."""
    # A lease for writing is granted only while no other process has the file open or mapped, in any container. The
    # kernel refuses it to users without the right, and before 5.3 it always refused in memory file systems.
    numbers = [text for text in os.uname().release.replace("-", ".").replace("+", ".").split(".")[:2] if text.isdigit()]
    there = os.path.isdir("/dev/shm")
    if not there or len(numbers) < 2 or (int(numbers[0]), int(numbers[1])) < (5, 3):
        return {"release": os.uname().release, "there": there}
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    # shm_open makes objects in /dev/shm itself. A folder there is its owner's, who may turn it into a link at any time.
    files, untold, shm = [], 0, os.open("/dev/shm", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    for name in os.listdir(shm):
        try:
            info = os.stat(name, dir_fd=shm, follow_symlinks=False)
        except OSError:
            continue
        age = time.time() - info.st_mtime
        if not stat.S_ISREG(info.st_mode) or age < 600:
            continue
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=shm)
        except OSError as error:
            untold += error.errno != errno.ENOENT
            continue
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            files.append({"path": "/dev/shm/" + name, "bytes": info.st_blocks * 512, "age": int(age)})
        except OSError as error:
            untold += error.errno != errno.EAGAIN
        finally:
            os.close(fd)
    os.close(shm)
    table = ""
    if os.path.exists("/proc/sysvipc/shm"):
        with open("/proc/sysvipc/shm") as file:
            table = file.read()
    text = " ".join([table] + [str(file["path"]) for file in files])
    words = set("".join(letter if letter in "0123456789" else " " for letter in text).split())
    living = sorted(word for word in words if os.path.isdir("/proc/" + word))
    return {"files": files, "untold": untold, "sysv": table, "now": time.time(), "living": living}


MADE_BY_JOBS = re.compile(
    r"torch_([0-9]+)_[0-9]+(?:_[0-9]+)?|psm_[0-9a-f]{8}|sem\.mp-\w{8}"
    r"|nccl-\w{6}|nccl-shm-(?:send|recv)-[\w-]+|cuda\.shm\.[0-9a-f]+\.[0-9a-f]+\.[0-9]+"
    r"|(?:vader|sm)_segment\..+|osc_rdma\..+|mpich_shar_tmp\w{6}|Intel_MPI_\w{6}|(?:ib|cm|slot)_shmem-.+"
    r"|psm[23]_shm\..+|ucx_shm_posix_[0-9a-f]+|__KMP_REGISTERED_LIB_([0-9]+)(?:_[0-9]+)?",
    re.ASCII,
)
"""Names in /dev/shm that a library makes anew for each run of a job, and that no other program looks for.

The groups are the processes that made them.

PyTorch (libshm), Python's multiprocessing; NCCL, CUDA; Open MPI, MPICH, Intel MPI, MVAPICH2; PSM2, PSM3, UCX; OpenMP of
LLVM. A file with another name may be a lock or the data of a service, which finds it by that name although no process
has it open: libpod_lock of podman, lttng-ust-wait-8, sem.* of databases, files that a user keeps there.
"""


class Segment(msgspec.Struct, frozen=True):
    """One shared memory segment that no process uses."""

    path: str
    """``/dev/shm/...``; for a System V segment its id."""
    bytes: int
    age: int
    """Seconds since it was last written or, for System V, attached."""


class IdleSegments(Fact, frozen=True):
    """Shared memory that jobs have left on the host: no process has had it open, mapped or attached for ten minutes.

    Of files those with a name of `MADE_BY_JOBS`, of System V segments those without a key, by which a program that
    starts later could find them; and none whose maker lives, by its name or its row in the kernel's table.

    Raw output, as JSON::

        {"files": [{"path": "/dev/shm/torch_99_1", "bytes": 8192, "age": 7200},
                   {"path": "/dev/shm/libpod_lock", "bytes": 73728, "age": 90000}],
         "untold": 0, "sysv": "", "now": 1795251294.5, "living": ["1"]}
    """

    probe = ask(list_idle_segments, root=True, timeout=20)

    files: tuple[Segment, ...]
    sysv: tuple[Segment, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> IdleSegments:
        data = answer.json()
        if not data.get("there", True):
            raise Absent("there is no /dev/shm")
        if "release" in data:
            raise Absent(
                filled("Linux {0} cannot show who uses a file in /dev/shm; Linux 5.3 and later can", data["release"])
            )
        listed = msgspec.convert(data["files"], list[Segment])
        living = set(msgspec.convert(data.get("living", []), list[str]))
        files = [segment for segment in listed if _is_left_by_job(segment.path, living)]
        hidden = {
            "/dev/shm": filled("only root may check the files of other users, {0} here: use --sudo", data["untold"])
        }
        return cls(
            files=tuple(sorted(files, key=lambda segment: (-segment.bytes, segment.path))),
            sysv=_unattached_segments(data["sysv"], data["now"], living),
            unread=hidden if data["untold"] else {},
        )


def _is_left_by_job(path: str, living: Set[str]) -> bool:
    name = path.removeprefix("/dev/shm/")
    match = MADE_BY_JOBS.fullmatch(name)
    return match is not None and living.isdisjoint(match.groups())


def _unattached_segments(table: str, now: float, living: Set[str]) -> tuple[Segment, ...]:
    """The rows of /proc/sysvipc/shm without a key and a process. Raises: Unreadable."""
    lines = table.splitlines()
    names = lines[0].split() if lines else []
    if lines and not {"key", "shmid", "size", "cpid", "lpid", "nattch", "atime", "dtime", "ctime"} <= set(names):
        raise Unreadable(filled("/proc/sysvipc/shm: {0} are not the columns expected", f"{beginning(lines[0], 80)!r}"))
    segments = []
    for line in lines[1:]:
        row = dict(zip(names, (int(word) for word in line.split()), strict=True))
        age = int(now - max(row["atime"], row["dtime"], row["ctime"]))
        used = row["nattch"] or row["key"] or not living.isdisjoint((str(row["cpid"]), str(row["lpid"])))
        if not used and age >= 600:
            held = row.get("rss", row["size"]) + row.get("swap", 0)
            segments.append(Segment(str(row["shmid"]), held, age))
    return tuple(segments)


class HostMemory(Fact, frozen=True):
    """The host's memory, in bytes.

    Raw output, from ``/proc/meminfo``::

        MemTotal:       24684096 kB
        MemFree:        20000000 kB
        MemAvailable:   24199000 kB
    """

    probe = read("/proc/meminfo")

    total: int
    available: int
    """What programs can still get without swapping, as the kernel estimates it."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> HostMemory:
        text = answer.text("/proc/meminfo")
        total, available = _meminfo_bytes(text, "MemTotal"), _meminfo_bytes(text, "MemAvailable")
        if not 0 <= available <= total or total == 0:
            raise Unreadable(filled("/proc/meminfo: {0} of {1} bytes available is inconsistent", available, total))
        return cls(total=total, available=available)


class MemoryCommitment(Fact, frozen=True):
    """How much memory the kernel promises to programs, whether they use it or not.

    Raw output, from ``/proc/sys/vm/overcommit_memory``::

        2

    Raw output, from ``/proc/meminfo``::

        MemAvailable:   24199000 kB
        CommitLimit:    12342048 kB
        Committed_AS:    1029004 kB
    """

    probe = read("/proc/sys/vm/overcommit_memory", "/proc/meminfo")

    mode: int
    """0: the kernel refuses only what is obviously too much; 1: it refuses nothing; 2: all that exceeds the limit."""
    limit: int
    """Bytes; it counts in mode 2 alone."""
    committed: int
    """Bytes that are promised now; more than the limit in the other modes."""
    available: int
    """Bytes that programs can still get without swapping, as the kernel estimates it."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> MemoryCommitment:
        mode, text = answer.text("/proc/sys/vm/overcommit_memory").strip(), answer.text("/proc/meminfo")
        if mode not in ("0", "1", "2"):
            raise Unreadable("/proc/sys/vm/overcommit_memory: expected 0, 1 or 2")
        limit, committed, available = (_meminfo_bytes(text, n) for n in ("CommitLimit", "Committed_AS", "MemAvailable"))
        return cls(mode=int(mode), limit=limit, committed=committed, available=available)


def _meminfo_bytes(text: str, name: str) -> int:
    match = re.search(rf"^{name}:\s+([0-9]{{1,15}}) kB$", text, re.M | re.A)
    if not match:
        raise Unreadable(filled("/proc/meminfo: no {0}", name))
    return int(match[1]) * KIB
