"""What each launcher puts into the environment of the processes that it starts. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import msgspec

from doctor.engine.sanitize import printable

Launcher = Literal["torchrun", "mpirun", "mpiexec", "msrun", "srun", "environment", "spawn"]
_MOST_RANKS = 9_999_999
SCHEDULER_PORT = 8118


class Problem(msgspec.Struct, frozen=True):
    """A variable with a value that cannot be so."""

    variable: str
    value: str
    """Empty: it is not set."""
    want: str

    @property
    def text(self) -> str:
        """
        >>> Problem("RANK", "x", "a number from 0 to 3").text
        "RANK='x', expected a number from 0 to 3"
        """
        shown = f"{self.variable}={self.value!r}" if self.value else f"{self.variable} is not set"
        return f"{shown}, expected {self.want}"


class Adopted(msgspec.Struct, frozen=True):
    """One process of a job, as its launcher describes it. -1: not told."""

    launcher: Launcher
    role: Literal["rank", "scheduler"]
    """The scheduler of an msrun job runs the same script, and is no rank."""
    rank: int
    world: int
    local: int = -1
    local_world: int = -1
    node: int = -1
    device: int = -1
    addresses: tuple[str, ...] = ()
    """Names or addresses that rank 0 (the scheduler, where there is one) may be reached at."""
    address_from: str = ""
    """The variable that they are from."""
    port: int = 0
    """Where the job's own ranks meet; 0: not told."""
    taken: bool = False
    """The launcher itself listens there already."""
    identity: str = ""
    """What all processes of this job, and of no other, have in common."""
    host: str = ""
    """As the launcher calls it; empty for its own name."""
    seen: tuple[str, ...] = ()
    """All launchers that left their traces."""
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def leads(self) -> bool:
        """Whether the others come to this one."""
        return self.role == "scheduler" or (self.rank == 0 and self.launcher != "msrun")

    @property
    def where(self) -> str:
        """The way to rank 0 in words, such as ``MASTER_ADDR=w1``."""
        return (
            f"{self.address_from}={' or '.join(self.addresses)}" if self.addresses else f"{self.address_from} is unset"
        )


class Reader:
    """Variables as numbers; what cannot be used is kept in mind."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = {name: value for name, value in environ.items() if value}
        self.problems: list[Problem] = []

    def first(self, *names: str) -> str:
        """The first of these that is set; the first of all where none is."""
        return next((name for name in names if name in self.environ), names[0])

    def text(self, name: str, default: str = "") -> str:
        return self.environ.get(name, default)

    def number(self, name: str, least: int = 0, most: int = _MOST_RANKS, needed: bool = True) -> int:
        """-1 for what is not such a number."""
        value = self.environ.get(name, "").strip()
        number = int(value) if re.fullmatch(r"[0-9]{1,9}", value, re.ASCII) else -1
        if least <= number <= most:
            return number
        if value or needed:
            shown = f"a whole number from {least} to {most}" if most < _MOST_RANKS else f"a whole number from {least}"
            self.problems.append(Problem(name, printable(value, 40), shown))
        return -1

    def rank(self, rank: str, world: str) -> tuple[int, int]:
        size = self.number(world, least=1)
        return self.number(rank, most=size - 1 if size > 0 else _MOST_RANKS), size

    def port(self, name: str, default: int = 0) -> int:
        number = self.number(name, least=1, most=65535, needed=False)
        return number if number > 0 else default


class Kind(NamedTuple):
    """How a launcher is recognised and read."""

    name: Launcher
    marks: tuple[str, ...]
    """Variables that are all set by it."""
    size: str
    """The one that says how many processes it started."""
    read: Callable[[Reader], Adopted]


def _torchrun(reader: Reader) -> Adopted:
    rank, world = reader.rank("RANK", "WORLD_SIZE")
    local = reader.number("LOCAL_RANK")
    port = reader.port("MASTER_PORT")
    restart = reader.text("TORCHELASTIC_RESTART_COUNT", "0")
    return Adopted(
        "torchrun",
        "rank",
        rank,
        world,
        local,
        reader.number("LOCAL_WORLD_SIZE", least=1, needed=False),
        reader.number("GROUP_RANK", needed=False),
        local,
        _addresses(reader, "MASTER_ADDR"),
        "MASTER_ADDR",
        port,
        reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True",
        f"torchrun {reader.text('TORCHELASTIC_RUN_ID')} {restart} {port}",
    )


def _mpirun(reader: Reader) -> Adopted:
    rank, world = reader.rank("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    local_world = reader.number("OMPI_COMM_WORLD_LOCAL_SIZE", least=1, needed=False)
    local = reader.number("OMPI_COMM_WORLD_LOCAL_RANK", needed=False)
    addresses, source = _addresses(reader, "MASTER_ADDR"), "MASTER_ADDR"
    notes: tuple[str, ...] = ()
    if not addresses and local_world == world:
        addresses = ("127.0.0.1",)
    elif not addresses:
        source = "OMPI_MCA_orte_hnp_uri"
        addresses = _of_uri(reader.text(source) or reader.text("PMIX_SERVER_URI2"))
        notes = ("MASTER_ADDR is not set, so rank 0 was looked for where mpirun runs; -x MASTER_ADDR tells for sure",)
    job = reader.first("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
    return Adopted(
        "mpirun",
        "rank",
        rank,
        world,
        local,
        local_world,
        device=local,
        addresses=addresses,
        address_from=source,
        port=reader.port("MASTER_PORT"),
        identity=f"mpirun {reader.text(job)}",
        notes=notes,
    )


def _mpiexec(reader: Reader) -> Adopted:
    """Hydra, the launcher of MPICH and Intel MPI."""
    rank, world = reader.rank("PMI_RANK", "PMI_SIZE")
    local = reader.number("MPI_LOCALRANKID", needed=False)
    return Adopted(
        "mpiexec",
        "rank",
        rank,
        world,
        local,
        reader.number("MPI_LOCALNRANKS", least=1, needed=False),
        device=local,
        addresses=_addresses(reader, "MASTER_ADDR"),
        address_from="MASTER_ADDR",
        port=reader.port("MASTER_PORT"),
        identity=f"mpiexec {reader.text(reader.first('PMI_JOBID', 'MASTER_PORT'))}",
    )


def _msrun(reader: Reader) -> Adopted:
    schedules = reader.text("MS_ROLE") == "MS_SCHED"
    world = reader.number("MS_WORKER_NUM", least=1)
    number = reader.first("RANK_ID", "MS_NODE_ID")  # the scheduler has RANK_ID=0, too
    rank = -1 if schedules else reader.number(number, most=world - 1 if world > 0 else _MOST_RANKS)
    device = reader.number("DEVICE_ID", needed=False)
    return Adopted(
        "msrun",
        "scheduler" if schedules else "rank",
        rank,
        world,
        device,
        device=device,
        addresses=_addresses(reader, "MS_SCHED_HOST") or ("127.0.0.1",),
        address_from="MS_SCHED_HOST",
        port=reader.port("MS_SCHED_PORT", SCHEDULER_PORT),
        identity=f"msrun {reader.port('MS_SCHED_PORT', SCHEDULER_PORT)} {world}",
    )


def _srun(reader: Reader) -> Adopted:
    rank, world = reader.rank("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    local, node = reader.number("SLURM_LOCALID", needed=False), reader.number("SLURM_NODEID", needed=False)
    counts = tasks_per_node(reader.text("SLURM_STEP_TASKS_PER_NODE"))
    addresses, source = _addresses(reader, "MASTER_ADDR"), "MASTER_ADDR"
    if not addresses:
        addresses, source = first_host(reader.text("SLURM_STEP_NODELIST")), "SLURM_STEP_NODELIST"
    return Adopted(
        "srun",
        "rank",
        rank,
        world,
        local,
        counts[node] if 0 <= node < len(counts) else -1,
        node,
        local,
        addresses,
        source,
        reader.port("MASTER_PORT"),
        identity=f"srun {reader.text('SLURM_JOB_ID')}.{reader.text('SLURM_STEP_ID')}",
        host=reader.text("SLURMD_NODENAME"),
    )


def environment(reader: Reader) -> Adopted:
    rank_name = reader.first("RANK", "RANK_ID")
    rank, world = reader.rank(rank_name, reader.first(*_SIZES[rank_name]))
    local = reader.number(reader.first("LOCAL_RANK", "DEVICE_ID"), needed=False)
    device = reader.number(reader.first("DEVICE_ID", "LOCAL_RANK"), needed=False)
    port = reader.port("MASTER_PORT")
    return Adopted(
        "environment",
        "rank",
        rank,
        world,
        local,
        reader.number("LOCAL_WORLD_SIZE", least=1, needed=False),
        device=device,
        addresses=_addresses(reader, "MASTER_ADDR") or ("127.0.0.1",),
        address_from="MASTER_ADDR",
        port=port,
        identity=f"environment {port}",
    )


_SIZES = {"RANK": ("WORLD_SIZE", "RANK_SIZE"), "RANK_ID": ("RANK_SIZE", "WORLD_SIZE")}
ENVIRONMENT = Kind("environment", ("RANK",), "WORLD_SIZE", environment)
KINDS = (
    Kind("torchrun", ("TORCHELASTIC_RUN_ID", "RANK"), "WORLD_SIZE", _torchrun),
    Kind("mpirun", ("OMPI_COMM_WORLD_RANK",), "OMPI_COMM_WORLD_SIZE", _mpirun),
    Kind("msrun", ("MS_ROLE",), "MS_WORKER_NUM", _msrun),
    Kind("srun", ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), "SLURM_STEP_NUM_TASKS", _srun),
)
"""Innermost first."""
HYDRA = Kind("mpiexec", ("PMI_RANK", "MPI_LOCALRANKID"), "PMI_SIZE", _mpiexec)
"""No smoke run is led by it: it says nowhere how rank 0 is reached."""


def _addresses(reader: Reader, name: str) -> tuple[str, ...]:
    value = reader.text(name).strip()
    return (value,) if value else ()


def _of_uri(uri: str) -> tuple[str, ...]:
    """The addresses in mpirun's contact string: ``123.0;tcp://10.0.0.1,10.1.0.1:4000;tcp6://[fd00::1]:4001``.

    >>> _of_uri("123.0;tcp://10.0.0.1,10.1.0.1:4000;tcp6://[fd00::1]:4001")
    ('10.0.0.1', '10.1.0.1', 'fd00::1')
    """
    fours = re.findall(r"tcp4?://([0-9.,]+):", uri)
    sixes = re.findall(r"tcp6://\[([0-9A-Fa-f:,]+)\]", uri)
    return tuple(address for group in fours + sixes for address in group.split(",") if address)


def tasks_per_node(text: str) -> list[int]:
    """Slurm's ``2(x3),1`` as a number a node; empty when it is not understood.

    >>> tasks_per_node("2(x3),1")
    [2, 2, 2, 1]
    """
    counts: list[int] = []
    for part in text.split(",") if text else ():
        found = re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", part.strip(), re.ASCII)
        if not found or len(counts) > 100_000:
            return []
        counts += [int(found[1])] * int(found[2] or 1)
    return counts


def first_host(nodes: str) -> tuple[str, ...]:
    """The first of Slurm's list of nodes, where task 0 runs; empty when there is none.

    >>> first_host("n[003-007,9],m1"), first_host("r[1-2]n[05-08]"), first_host("login1")
    (('n003',), ('r1n05',), ('login1',))
    """
    found = re.match(r"((?:[^,\[\]]|\[[^\]]*\])+)", nodes)
    if not found:
        return ()
    name = re.sub(r"\[([^\]]*)\]", lambda one: re.split(r"[-,]", one[1], maxsplit=1)[0], found[1])
    return (name,) if name else ()
