"""A scheduler: how its jobs are recognised, and what its variables mean for a job and its hosts."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.environment.host_list import HostList, in_files
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed
from doctor.hosts.nodeset import InventoryError

_LONGEST_JOB_ID = 60


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler's job, from the environment of one of its processes. None and empty: not known."""

    scheduler: JobScheduler
    job_id: str = ""
    host_lists: tuple[HostList, ...] = ()
    """Where it lists the hosts of the job; the first that can be read counts."""
    host_name: str = ""
    """What the scheduler calls this host."""
    node_rank: int | None = None
    node_count: int | None = None
    starts_every_host: bool = False
    """It starts one process on every host, not a single batch script."""
    is_scheduler_process: bool = False
    """This process is MindSpore's scheduler, which is no rank."""
    host_variables: tuple[str, ...] = ()
    """Variables with the names of a rank's that describe the host here."""
    daemon_script: str = ""
    """``prolog`` or ``epilog``: the scheduler's daemon runs this process before or after the job."""
    restart: str = ""
    """How often the job was started again, if it keeps its id."""

    @property
    def title(self) -> str:
        """``Slurm job 1234``."""
        return filled("{0} job {1}", self.scheduler.title, self.job_id) if self.job_id else self.scheduler.title


class HostSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a scheduler lists hosts: one of a variable, a variable that names a file, and a command."""

    variable: str = ""
    file: str = ""
    command: tuple[str, ...] = ()
    form: Literal["node_set", "node_set_of_slots", "words", "pairs", "json_list", "cluster_spec"] = "node_set"
    """A function of `doctor.hosts.listed`."""
    unless: str = ""
    """A variable that takes the command's place."""

    def lists(self, variables: EnvironmentVariables, launch_node: bool = False) -> list[HostList]:
        """The list, where these variables have it. ``launch_node``: its first host has no ranks."""
        parse = getattr(listed, self.form)
        if self.command and self.unless not in variables:
            return [HostList(" ".join(self.command), command=self.command, parse=parse)]
        if self.variable in variables:
            return [HostList(self.variable, variables.text(self.variable), parse=parse, has_launch_node=launch_node)]
        lists = in_files(variables, self.file)
        return [msgspec.structs.replace(host_list, has_launch_node=launch_node) for host_list in lists]


class JobScheduler(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of schedulers.toml. A column of variables is text with spaces between: the first that is set counts."""

    name: str
    """In a report's tag, such as ``slurm``."""
    title: str
    """In a sentence, such as ``Slurm``."""
    markers: tuple[str, ...] = ()
    """Its jobs have all the variables of one of these texts; empty: code decides."""
    reaches_hosts: bool = False
    """A batch script reaches all hosts of its job: commands that a user types inside of the job are for them."""
    job_id: str = ""
    hosts: tuple[HostSource, ...] = ()
    """The first that can be read counts."""
    launch_node: str = ""
    """A variable by which the first host of the list starts the ranks, and has none."""
    host_name: str = ""
    """A variable with its name of this host, also in processes that are of no job, such as a health check."""
    place: str = ""
    """This host by its name in the list."""
    node_rank: str = ""
    first_node: str = ""
    """The number of the node that leads, if that need not be 0."""
    single_node_is_first: bool = False
    """The only node of a job is number 0, with any index."""
    node_count: str = ""
    several_hosts: tuple[str, ...] = ()
    """Without any of these variables the job has one host."""
    starts_every_host: bool = False
    """It starts one process on every host, not a single batch script."""
    step: str = ""
    """The number of a launch within the job."""
    batch_script: str = ""
    """A variable that, without a step, a batch script has."""
    source: str
    sample: str
    """The variables of a process of its job, as ``env`` prints them."""
    sample_files: dict[str, str] = {}
    """The files and the outputs of commands that belong to the sample."""
    expected: dict[str, int | str | list[str]]
    """Fields of the sample's `JobContext`."""

    def is_present(self, variables: EnvironmentVariables) -> bool:
        """Whether this process is of one of its jobs."""
        return any(all(name in variables for name in names.split()) for names in self.markers)

    def read(self, variables: EnvironmentVariables) -> Allocation:
        """The job of this process by the row's variables. Never raises."""
        launch_node = self.launch_node in variables
        lists = tuple(entry for source in self.hosts for entry in source.lists(variables, launch_node))
        node_rank, node_count = self._node_rank(variables), variables.number_of(self.node_count, minimum=1)
        if self.place:
            names = _names(lists)
            node_rank = names.index(variables.text(self.place)) if variables.text(self.place) in names else None
            node_count = len(names) or None
        if self.several_hosts and not any(name in variables for name in self.several_hosts):
            node_count = 1
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text(variables.first_set(*self.job_id.split(), "")), _LONGEST_JOB_ID),
            host_lists=lists,
            host_name=variables.text(self.host_name),
            node_rank=0 if self.single_node_is_first and node_count == 1 else node_rank,
            node_count=node_count,
            starts_every_host=self.starts_every_host and node_count != 1,
        )

    def _node_rank(self, variables: EnvironmentVariables) -> int | None:
        """The number of this node; the node that leads is number 0, with any index."""
        for source in self.hosts:
            if source.form == "cluster_spec":
                return listed.cluster_position(variables.text(source.variable))
        index, first = variables.number_of(self.node_rank), variables.number_of(self.first_node) or 0
        if index is None or not first or index > first:
            return index
        return 0 if index == first else index + 1

    def describe_single_process(self, variables: EnvironmentVariables) -> list[str]:
        """Parts of a sentence on a process that is the only one of its launch, such as ``batch script``."""
        step = variables.text(self.step)
        if step:
            return [filled("step {0}", printable(step, 20))]
        return ["batch script"] if self.batch_script in variables else []


def _names(lists: tuple[HostList, ...]) -> list[str]:
    """The hosts of the first list; empty where it makes no sense."""
    try:
        return [line.host for line in lists[0].parse(lists[0].text, lists[0].source)] if lists else []
    except InventoryError:
        return []
