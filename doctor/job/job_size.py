"""What states the size of a job, and whether it fits together. Pure.

One table of variables, for all that set them: a script by hand, torchrun, MindSpore, Open MPI, PMI, Slurm. What a
launcher of the launch line sets itself for its ranks is not in force before it runs, and is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from doctor.engine.texts import filled

SizeKind = Literal["ranks", "tasks", "hosts", "ranks per host", "tasks per host"]
_BY_KIND: dict[SizeKind, str] = {
    "ranks": "WORLD_SIZE RANK_SIZE MS_WORKER_NUM PADDLE_TRAINERS_NUM",
    "tasks": """
OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_SIZE MV2_COMM_WORLD_SIZE JSM_NAMESPACE_SIZE FLUX_JOB_SIZE JAX_NUM_PROCESSES
SLURM_STEP_NUM_TASKS SLURM_NTASKS
""",
    "hosts": """
SLURM_NNODES FLUX_JOB_NNODES SLURM_JOB_NUM_NODES SLURM_STEP_NUM_NODES NUM_NODES NNODES PET_NNODES
""",
    "ranks per host": "LOCAL_WORLD_SIZE",
    "tasks per host": """
OMPI_COMM_WORLD_LOCAL_SIZE MPI_LOCALNRANKS MV2_COMM_WORLD_LOCAL_SIZE JSM_NAMESPACE_LOCAL_SIZE PALS_LOCAL_SIZE
""",
}
VARIABLES: dict[str, SizeKind] = {name: kind for kind, names in _BY_KIND.items() for name in names.split()}
"""What each number counts. A task of a launcher is a rank, or starts all ranks of its host, or some of them."""
OF_ALLOCATION = frozenset(("SLURM_NTASKS", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"))
"""Of what was allocated: a step of the job may be smaller, so that a difference need not be a fault."""
OF_STEP = "SLURM_STEP_ID"
"""Within a step, SLURM_NTASKS and SLURM_NNODES are those of the step."""
SETS_SIZES = frozenset(("torchrun", "msrun", "accelerate", "deepspeed", "composer", "paddle"))
"""Launchers that give their ranks a WORLD_SIZE of their own, over what is exported before."""
STARTS_TASKS = {
    "srun": ("srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    "openmpi": ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "hydra": ("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "flux": ("flux run", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"),
}
"""Launchers whose tasks are the ranks, or start them: the command that people know each by, and the variables by which
a task knows its number, the number of all, and its number on its host.
"""

ONE_ON_EACH_HOST = ("torchrun", "msrun", "accelerate", "composer", "paddle")
"""Launchers whose ranks are on their own host: each of several hosts needs one."""

RANK_OF_TORCHRUN = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE")
ASKED_OF_TORCHRUN = frozenset(("NUM_NODES", "NNODES", "PET_NNODES"))
"""What a script exports for its launch line. torchrun gives its ranks what it started, which may be another number:
an option goes before PET_NNODES, ``--standalone`` is one host, an elastic job has fewer or more, and it reads no
NNODES. In its ranks these are not in force."""


_LONGEST = 4096
"""Characters; Python refuses to read numbers of thousands of digits."""


class StatedSize(msgspec.Struct, frozen=True):
    """One number that a source states."""

    source: str
    """A variable, or words for an option or a file."""
    kind: SizeKind
    number: int
    in_force: bool = True
    """What states it also starts the ranks."""


class Contradiction(msgspec.Struct, frozen=True):
    """Two statements that cannot both be true, in words without the values' sources."""

    first: StatedSize
    second: StatedSize
    expected: str
    is_certain: bool = True


def stated_sizes(environ: Mapping[str, str], launchers: Sequence[str] = ()) -> list[StatedSize]:
    """What the variables state, in the order of the table.

    >>> [size.source for size in stated_sizes({"WORLD_SIZE": "16", "RANK_SIZE": "x", "SLURM_NNODES": "2"})]
    ['WORLD_SIZE', 'SLURM_NNODES']
    """
    in_step = OF_STEP in environ
    overridden = bool(SETS_SIZES.intersection(launchers))
    not_in_force = ASKED_OF_TORCHRUN if any(name in environ for name in RANK_OF_TORCHRUN) else ()
    sizes = []
    for name, kind in VARIABLES.items():
        if name in not_in_force:
            continue
        number = _number(environ.get(name, ""))
        if number and not (overridden and kind in ("ranks", "ranks per host")):
            sizes.append(StatedSize(name, kind, number, in_step or name not in OF_ALLOCATION))
    return sizes


def least_hosts(environ: Mapping[str, str], ranks_per_host: int = 0) -> int:
    """So many hosts at least, by the variables of others than a scheduler; 0: they do not say.

    NUM_NODES alone is no mark of a job: many a script has it. ``ranks_per_host``: as the user says; 0: not said. A
    launcher's own number of them goes before it.

    >>> [least_hosts(environ) for environ in ({"NNODES": "4"}, {"WORLD_SIZE": "17", "LOCAL_WORLD_SIZE": "8"}, {})]
    [4, 3, 0]
    """
    sizes = stated_sizes(environ)
    others = ("NUM_NODES", *(name for name in VARIABLES if name.startswith("SLURM_")))
    counts = [size.number for size in sizes if size.kind == "hosts" and size.source not in others]
    for kind, kind_per_host in (("ranks", "ranks per host"), ("tasks", "tasks per host")):
        each = next((size.number for size in sizes if size.kind == kind_per_host), 0)
        each = each or (ranks_per_host if kind == "ranks" else 0)
        if each:
            counts += [-(-size.number // each) for size in sizes if size.kind == kind and size.in_force]
    return max(counts, default=0)


def has_local_size(environ: Mapping[str, str]) -> bool:
    """Whether a variable states how many of the job's tasks or ranks are on this host."""
    return any(size.kind.endswith("per host") for size in stated_sizes(environ))


def contradictions(sizes: Sequence[StatedSize]) -> Iterator[Contradiction]:
    """Pairs that cannot both be true: each statement is named once, with the first that it contradicts.

    Ranks that are no more than the hosts may count hosts: scripts for one task on each host set them so. Where the
    number of hosts is not stated, a number of ranks that divides another one may be theirs.
    """
    hosts = max((size.number for size in sizes if size.kind == "hosts"), default=1)
    ranks = [size for size in sizes if size.kind == "ranks" and (size.number > hosts or hosts == 1)]
    for other in ranks[1:]:
        if other.number != ranks[0].number and min(other.number, ranks[0].number) > 1:
            larger, smaller = sorted((other, ranks[0]), key=lambda size: -size.number)
            expected = filled("the same, or {0} to be the number of hosts", smaller.source)
            yield Contradiction(other, ranks[0], expected, larger.number % smaller.number > 0)
    for size in sizes:
        if size.kind == "tasks" and ranks and ranks[0].number % size.number and size.number > 1:
            expected = filled("{1} to be a multiple of {0}", size.source, ranks[0].source)
            yield Contradiction(ranks[0], size, expected, size.in_force)
    yield from _fewer_than_hosts(sizes)
    yield from _products(sizes, ranks)
    yield from _tasks_per_host(sizes)
    stated = _hosts_in_force(sizes)
    for other in stated[1:]:
        if other.number != stated[0].number:
            yield Contradiction(other, stated[0], filled("{0} and {1} to be equal", stated[0].source, other.source))
    allocated = next((size for size in sizes if size.kind == "hosts" and not size.in_force), None)
    if allocated and stated and stated[0].number > allocated.number:
        expected = filled("{0} to be at most {1}", stated[0].source, allocated.number)
        yield Contradiction(stated[0], allocated, expected, False)


def _products(sizes: Sequence[StatedSize], ranks: Sequence[StatedSize]) -> Iterator[Contradiction]:
    """Hosts times ranks on each is the number of ranks."""
    hosts = next((size for size in sizes if size.kind == "hosts"), None)
    each = next((size for size in sizes if size.kind == "ranks per host"), None)
    if each and ranks and each.number > ranks[0].number:
        yield Contradiction(each, ranks[0], filled("{0} to be at most {1}", each.source, ranks[0].number))
    elif each and hosts and ranks and hosts.number * each.number != ranks[0].number:
        product = hosts.number * each.number
        first = msgspec.structs.replace(hosts, source=f"{hosts.source} x {each.source}", number=product)
        yield Contradiction(ranks[0], first, filled("{1} to be {0}", product, ranks[0].source), hosts.in_force)


def _fewer_than_hosts(sizes: Sequence[StatedSize]) -> Iterator[Contradiction]:
    """A host without a rank is none of the job."""
    for hosts in _hosts_in_force(sizes):
        for size in sizes:
            is_count = size.kind in ("ranks", "tasks") and size.in_force and _is_of_step(hosts) <= _is_of_step(size)
            if is_count and 1 < size.number < hosts.number:
                expected = filled("{0} to be at least {1}, one rank on each host", size.source, hosts.number)
                yield Contradiction(size, hosts, expected, False)
                return


def _hosts_in_force(sizes: Sequence[StatedSize]) -> list[StatedSize]:
    return [size for size in sizes if size.kind == "hosts" and size.in_force]


def _is_of_step(size: StatedSize) -> bool:
    """Also the step by which mpirun starts its daemons, on more hosts than it may use: it counts beside its like."""
    return size.source.startswith("SLURM_")


def _tasks_per_host(sizes: Sequence[StatedSize]) -> Iterator[Contradiction]:
    """Of one launcher. Hosts may have one task more or fewer than this one; more uneven ones are rare: a warning."""
    each = next((size for size in sizes if size.kind == "tasks per host"), None)
    prefix = each.source.partition("_")[0] if each else ""
    tasks = [size for size in sizes if size.kind == "tasks" and size.in_force]
    stated = next(
        (size for size in tasks if size.source.startswith(f"{prefix}_")), tasks[0] if len(tasks) == 1 else None
    )
    if each is None or stated is None:
        return
    if each.number > stated.number:
        yield Contradiction(each, stated, filled("{0} to be at most {1}", each.source, stated.number))
        return
    least, most = -(-stated.number // (each.number + 1)), -(-stated.number // max(each.number - 1, 1))
    for hosts in _hosts_in_force(sizes):
        if not _is_of_step(hosts) and not least <= hosts.number <= most:
            first = msgspec.structs.replace(
                stated, source=f"{stated.source} / {each.source}", number=stated.number // each.number
            )
            yield Contradiction(hosts, first, filled("{1} to be {0}", first.number, hosts.source), False)


def python_number(text: str) -> int | None:
    """What int() makes of a text, with blanks, a sign and underscores; None where it raises ValueError.

    >>> python_number(" 29_500"), python_number("+29500"), python_number("29500.0")
    (29500, 29500, None)

    Source: PyTorch, torch/distributed/rendezvous.py, which reads RANK, WORLD_SIZE and MASTER_PORT so.
    """
    try:
        return int(text) if len(text) <= _LONGEST else None
    except ValueError:
        return None


def is_number(text: str) -> bool:
    """Whether float() of Python takes it."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> int:
    """0 for what is no number of a job's size. Of an elastic range the least."""
    least, colon, most = text.partition(":")
    number = python_number(least) or 0
    return number if 0 <= number < 10**7 and (not colon or python_number(most) is not None) else 0
