"""A launcher: how its processes are recognised, and what its variables mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import msgspec

from doctor.environment.variables import EnvironmentVariables, VariableProblem


class LaunchedRank(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a launch, as its launcher describes it. None: not known. See `JobContext` for the fields."""

    launcher: RankLauncher
    launch_id: str
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    local_world_size: int | None = None
    node_rank: int | None = None
    device: int | None = None
    is_scheduler_process: bool = False
    leader_is_scheduler: bool = False
    leader_addresses: tuple[str, ...] = ()
    leader_address_source: str = "MASTER_ADDR"
    leader_port: int = 0
    leader_port_in_use: bool = False
    host_name: str = ""
    launchers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    problems: tuple[VariableProblem, ...] = ()


class RankLauncher(ABC):
    """A launcher of ranks. Each is one module of `doctor.environment.launchers` with a constant ``LAUNCHER``."""

    name: ClassVar[str]
    """The program, such as ``mpirun``; the module has the same name."""
    kind: ClassVar[str] = ""
    """The launcher in a report's tag, such as ``openmpi``; empty: its name."""
    title: ClassVar[str] = ""
    """The launcher in a sentence; empty: its name."""
    priority: ClassVar[int] = 0
    """Where launchers nest, the one with the lowest number is the innermost. Each has a number of its own."""
    markers: ClassVar[tuple[str, ...]] = ()
    """Variables that it always sets, all of them; empty: it is not recognised by variables of its own."""
    world_size_variable: ClassVar[str] = "WORLD_SIZE"
    """How many processes it started."""
    sets_rank_variables: ClassVar[bool] = False
    """It sets RANK or RANK_ID itself, so that these are no sign of ranks that a script numbers."""
    by_hand: ClassVar[bool] = False
    """No program: a script sets the variables."""
    names_leader: ClassVar[bool] = True
    """Its variables say how rank 0 is reached, so that ranks can meet by themselves."""
    scheduler: ClassVar[str] = ""
    """The scheduler that this launcher is a part of, by `JobScheduler.name`."""
    hostfile_variables: ClassVar[tuple[str, ...]] = ()
    """Variables that name the hostfile that it takes without an option."""
    daemon_marker: ClassVar[str] = ""
    """A variable of its ranks, if it starts daemons as a Slurm step of their own: that step is not the job's ranks."""

    def __init_subclass__(cls) -> None:
        cls.kind = cls.kind or cls.name
        cls.title = cls.title or cls.name

    def is_present(self, variables: EnvironmentVariables) -> bool:
        """Whether it started this process, or one around it."""
        return bool(self.markers) and all(marker in variables for marker in self.markers)

    @abstractmethod
    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """This process by its variables. Never raises: unusable values are kept in ``variables.problems``."""

    def describe(self, rank_of_world: str, variables: EnvironmentVariables) -> list[str]:
        """Parts of a sentence. ``rank_of_world``: ``3 of 8``, with ``?`` for what is not known."""
        return [f"{self.title}, rank {rank_of_world}"]
