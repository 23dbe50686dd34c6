"""Where a process runs: under which launcher, on which platform, with which hosts, as which of how many. Pure.

Launchers nest. The innermost that gave this process its rank is its launcher (`doctor.environment.rank`); the platform
around it knows the job and its hosts. What one process looks at follows from that, see `scope`:

- started once, by a batch script or by hand: the whole fleet;
- started on every host or rank: each host is looked at by one process on it, and the fleet by rank 0 alone. No rank
  hears of another host's verdict. It need not: srun, mpirun and torchrun end a job as soon as one process of it fails,
  so the job begins only where all end with 0. A script that starts its ranks itself has to look at all their codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from doctor.environment.describe import kind, tag, words
from doctor.environment.hosts import find_hosts
from doctor.environment.inventory import Inventory, InventoryError
from doctor.environment.mounted_rank_table import ReadFile, find_table, wait_for_table
from doctor.environment.nested_rank import Ranked, find_rank
from doctor.environment.platforms import Platform, find_platform

__all__ = ["Place", "Scope", "find", "inventory", "scope", "wait_for_table"]

_CONTEXTS = ("prolog_slurmd", "epilog_slurmd")

Started = Literal["once", "hosts", "ranks", "prolog"]
Scope = Literal["local", "cluster", "follower"]
Asked = Literal["auto", "local", "cluster"]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """This process in its job. None: not told."""

    kind: str
    """``slurm``, ``modelarts``, ``mindcluster``, ``volcano``, ``kubeflow``; without a platform the launcher:
    ``torchrun``, ``openmpi``, ``mpich``, ``msrun``, ``rank-table``, ``shell``; without one ``hostfile``, ``hosts``, or
    ``alone``."""
    words: str
    """For people: ``Slurm job 1234, step 0, task 3 of 8 on n2``."""
    tag: str
    """The same for one word of a line: ``slurm:1234/torchrun``."""
    started: Started = "once"
    """As a single process; as one on every host; as one for every rank; by Slurm's daemon before or after a job."""
    launcher: str = ""
    """Who made this process a rank: ``srun``, ``mpirun``, ``mpiexec``, ``torchrun``, ``msrun``, ``environment``."""
    identity: str = ""
    """What all processes of this launch have in common, and those of another job have not."""
    job: str = ""
    hosts: tuple[str, ...] | None = None
    source: str = ""
    """Where the hosts are from; the variable or file, in words."""
    slots: dict[str, int] = {}
    error: str = ""
    """Why the list of hosts that is there cannot be used."""
    rank: int | None = None
    world: int | None = None
    local_rank: int | None = None
    local_world: int | None = None
    node_rank: int | None = None
    nodes: int | None = None
    scheduler: bool = False
    """MindSpore's scheduler, which is no rank."""
    rank_table: str = ""
    """The path of the job's table."""
    table_waits: bool = False
    """It is not complete yet: see `wait_for_table`, and look for the place once more after it."""
    conflicts: tuple[str, ...] = ()
    """Where two sources contradict each other, or a variable cannot be what it says."""
    notes: tuple[str, ...] = ()
    """What cannot be looked at from here."""

    @property
    def shared(self) -> bool:
        """Whether this host may have other processes of the same launch."""
        return self.started == "ranks" and self.local_world != 1

    @property
    def leads(self) -> bool:
        """Whether this is the one process that looks at the fleet; also where nobody can tell which one is."""
        if self.started in ("once", "prolog"):
            return self.started == "once"
        own = self.rank if self.started == "ranks" else self.node_rank
        return not self.scheduler and own in (0, None)


def find(environ: Mapping[str, str], read_file: ReadFile) -> Place:
    """The place of the process with this environment. Never raises: what cannot be is kept in `Place.conflicts`."""
    environ = {name: value for name, value in environ.items() if value}
    table = find_table(environ, read_file)
    platform = find_platform(environ, table)
    ranked = find_rank(environ, platform, table)
    named = find_hosts(environ, read_file, platform, table)
    numbers: dict[str, Any] = dict(ranked.numbers)
    place = Place(
        kind=kind(environ, platform, ranked, table),
        words="",
        tag="",
        started=_started(environ, platform, ranked),
        launcher=ranked.launcher,
        identity=_identity(environ, platform, ranked),
        job=platform.job if platform else "",
        hosts=named.hosts,
        source=named.source,
        slots=named.slots,
        error=named.error,
        **numbers,
        nodes=platform.nodes if platform and platform.nodes > 0 else None,
        scheduler=ranked.scheduler or (platform is not None and platform.scheduler),
        rank_table=table.path if table else "",
        table_waits=table is not None and table.waits,
        conflicts=(*ranked.conflicts, *named.conflicts),
    )
    shown: dict[str, Any] = {"words": words(place, environ, platform), "tag": tag(place), "notes": _notes(place)}
    return msgspec.structs.replace(place, **shown)


def scope(place: Place, asked: Asked = "auto") -> Scope:
    """What this process looks at: its own host, the whole fleet, or nothing, as another one of its host does.

    Where the rank within the host is not told, nobody is a follower by number: `doctor.preflight.host_leader` lets the
    first that comes look. ``asked``: what the user wants, instead of what the place suggests.
    """
    first = not place.shared or place.local_rank in (0, None)
    if asked == "cluster":
        return "cluster" if first or place.leads else "follower"
    if asked == "auto" and place.leads:
        return "cluster"
    return "local" if first else "follower"


def inventory(place: Place) -> Inventory | None:
    """The hosts of the fleet; None where the place names none. Raises: InventoryError."""
    if place.error:
        raise InventoryError(place.error)
    if place.hosts is None:
        return None
    count = "1 host" if len(place.hosts) == 1 else f"{len(place.hosts)} hosts"
    return Inventory(place.hosts, f"{count} from {place.source}", place.slots)


def _started(environ: Mapping[str, str], platform: Platform | None, ranked: Ranked) -> Started:
    if environ.get("SLURM_SCRIPT_CONTEXT") in _CONTEXTS:
        return "prolog"
    if ranked.launcher or ("DEVICE_ID" in environ and "RANK_TABLE_FILE" in environ):
        return "ranks"
    return "hosts" if platform and platform.each else "once"


def _identity(environ: Mapping[str, str], platform: Platform | None, ranked: Ranked) -> str:
    parts = [platform.kind if platform else "", platform.job if platform else "", ranked.identity]
    return " ".join([*parts, environ.get("SLURM_RESTART_COUNT", "")]).strip()


def _notes(place: Place) -> tuple[str, ...]:
    within = place.world is not None and place.world == place.local_world
    several = (place.nodes or 0) > 1 or (place.node_rank or 0) > 0 or (place.started == "ranks" and not within)
    if place.hosts is not None or place.error or place.nodes == 1 or not several:
        return ()
    if place.table_waits:
        return ()
    nothing = "nothing tells the names of the job's hosts: each looks at itself, nothing between them is looked at"
    return (f"{nothing}; expected --hostfile FILE, or DOCTOR_HOSTFILE",)
