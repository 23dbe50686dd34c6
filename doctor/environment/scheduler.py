"""A scheduler: how its jobs are recognised, and what its variables mean for a job and its hosts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import msgspec

from doctor.environment.host_list import HostList
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.variables import EnvironmentVariables


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
        return f"{self.scheduler.title} job {self.job_id}" if self.job_id else self.scheduler.title


class JobScheduler(ABC):
    """A scheduler or platform. Each is one module of `doctor.environment.schedulers` with a constant ``SCHEDULER``."""

    name: ClassVar[str]
    """In a report's tag, such as ``slurm``; the module has the same name."""
    title: ClassVar[str]
    """In a sentence, such as ``Slurm``."""
    priority: ClassVar[int]
    """Where several are recognised, the one with the lowest number is taken. Each has a number of its own."""
    reaches_hosts: ClassVar[bool] = False
    """A batch script reaches all hosts of its job: commands that a user types inside of the job are for them."""
    host_name_variable: ClassVar[str] = ""
    """A variable with its name of this host, also in processes that are of no job, such as a health check."""

    @abstractmethod
    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """The job of this process; None where it is no job of this scheduler. Never raises."""

    def describe_single_process(self, variables: EnvironmentVariables) -> list[str]:
        """Parts of a sentence on a process that is the only one of its launch, such as ``batch script``."""
        return []
