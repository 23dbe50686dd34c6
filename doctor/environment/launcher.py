"""A launcher: how its processes are recognised, and what its variables mean."""

from __future__ import annotations

import msgspec

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.environment.variables import EnvironmentVariables, VariableProblem


class RankInLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a process in its launch. None and empty: not known."""

    launchers: tuple[str, ...] = ()
    """All that are around this process, innermost first."""
    launch_id: str = ""
    """As `JobContext.identity`, by the launcher's variables alone: it is the same where only some hosts have a
    scheduler's."""
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    local_world_size: int | None = None
    node_rank: int | None = None
    device: int | None = None
    is_scheduler_process: bool = False
    """MindSpore's scheduler, which runs the same program and is no rank."""
    leader_is_scheduler: bool = False
    """The ranks meet at MindSpore's scheduler, not at rank 0."""
    leader_addresses: tuple[str, ...] = ()
    """Names or addresses at which the leader may be reached."""
    leader_address_source: str = ""
    """The variable with the leader's addresses."""
    leader_port: int = 0
    """Where the job's own ranks meet; 0: not known."""
    leader_port_in_use: bool = False
    """The launcher itself listens there."""
    problems: tuple[VariableProblem, ...] = ()
    """Variables of the launcher with impossible values."""


class LaunchedRank(RankInLaunch, frozen=True, kw_only=True):
    """One process of a launch, as its launcher describes it."""

    launcher: RankLauncher
    host_name: str = ""
    notes: tuple[str, ...] = ()
    """How the rank was found, where that is not certain: nested launchers."""
    contradictions: tuple[str, ...] = ()


class RankLauncher(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of launchers.toml. A column of variables is text with spaces between: the first that is set counts."""

    name: str
    """The program, such as ``mpirun``."""
    kind: str = ""
    """The launcher in a report's tag, such as ``openmpi``; empty: its name."""
    title: str = ""
    """The launcher in a sentence; empty: its name."""
    markers: tuple[str, ...] = ()
    """Variables that it always sets, all of them; empty: it is not recognised by variables of its own."""
    sets_rank_variables: bool = False
    """It sets RANK or RANK_ID itself, so that these are no sign of ranks that a script numbers."""
    by_hand: bool = False
    """No program: a script sets the variables."""
    names_leader: bool = True
    """Its variables say how rank 0 is reached, so that ranks can meet by themselves."""
    scheduler: str = ""
    """The scheduler that this launcher is a part of, by `JobScheduler.name`."""
    step: str = ""
    """The number of the launch within the scheduler's job."""
    launch: tuple[str, ...] = ()
    """The same in all processes of a launch, and others in other launches."""
    rank: str = ""
    world_size: str = ""
    local_rank: str = ""
    local_rank_required: bool = False
    local_world_size: str = ""
    node_rank: str = ""
    node_count: str = ""
    """Where it is 1, all ranks are on this host."""
    device: str = ""
    """Empty: the rank within the host."""
    host_name: str = ""
    scheduler_role: tuple[str, ...] = ()
    """Variable and value of the process that is MindSpore's scheduler and no rank, at which the ranks meet."""
    leader_address: str = "MASTER_ADDR"
    leader_port: str = "MASTER_PORT"
    leader_default: str = ""
    """The leader's address where no variable has it."""
    agent_store: str = ""
    """``True``: the launcher itself listens at the leader's port."""
    hostfiles: tuple[str, ...] = ()
    """Variables that name the hostfile that it takes without an option."""
    daemon_marker: str = ""
    """A variable of its ranks, if it starts daemons as a Slurm step of their own: that step is not the job's ranks."""
    source: str
    sample: str
    """The variables of one of its ranks, as ``env`` prints them."""
    expected: dict[str, int | str] = {}
    """Fields of the sample's `JobContext`."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "kind", self.kind or self.name)
        msgspec.structs.force_setattr(self, "title", self.title or self.name)

    def is_present(self, variables: EnvironmentVariables) -> bool:
        """Whether it started this process, or one around it."""
        return bool(self.markers) and all(marker in variables for marker in self.markers)

    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """This process by the row's variables. Never raises: unusable values are kept in ``variables.problems``."""
        is_scheduler = bool(self.scheduler_role) and variables.text(self.scheduler_role[0]) == self.scheduler_role[1]
        rank, world_size = variables.rank_and_world_size(self.rank, self.world_size, not is_scheduler)
        local_rank = variables.number_of(self.local_rank, required=self.local_rank_required)
        on_one_host = variables.number_of(self.node_count, minimum=1) == 1
        texts = [variables.text(variables.first_set(*names.split())) for names in self.launch]
        return LaunchedRank(
            launcher=self,
            launch_id=" ".join((self.name, *texts)).rstrip(),
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            local_world_size=world_size if on_one_host else variables.number_of(self.local_world_size, minimum=1),
            node_rank=variables.number_of(self.node_rank),
            device=variables.number_of(self.device) if self.device else local_rank,
            is_scheduler_process=is_scheduler,
            leader_is_scheduler=bool(self.scheduler_role),
            leader_addresses=variables.addresses(self.leader_address) or tuple(self.leader_default.split()),
            leader_address_source=self.leader_address,
            leader_port=variables.port(self.leader_port),
            leader_port_in_use=variables.text(self.agent_store) == "True",
            host_name=variables.text(self.host_name),
        )

    def describe(self, rank_of_world: str, variables: EnvironmentVariables) -> list[str]:
        """Parts of a sentence. ``rank_of_world``: ``3 of 8``, with ``?`` for what is not known."""
        if not self.scheduler:
            return [filled("{0}, rank {1}", self.title, rank_of_world)]
        step = [filled("step {0}", printable(variables.text(self.step), 20))] if self.step else []
        return [*step, filled("task {0}", rank_of_world)]
