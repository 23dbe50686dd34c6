"""What a saved run keeps of the job: plain values, checked when a file is read.

`doctor.job` makes `LaunchConfig` and `RankTableFile` of them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
RankCount = Annotated[int, msgspec.Meta(ge=0, le=9_999_999)]


class LaunchOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The job's settings, as the command line and the environment give them. Whatever is empty is not given."""

    environ: dict[str, str] = {}
    """The environment variables that matter to the job."""
    framework: str = ""
    master_addr: str = ""
    master_port: Port | None = None
    world_size: RankCount | None = None
    ranks_per_host: dict[str, RankCount] | RankCount | None = None
    rank_table: str = ""
    """Path of the rank table that the command line names."""
    python: str = ""
    """The job's Python interpreter on the hosts."""
    product: str = ""
    by_host: dict[str, dict[str, str]] = {}
    """Each host's own environment variables, where `doctor merge` joins hosts' files."""
    read_from: str = ""
    """Where ``environ`` was read: ``the launch line``, ``process 4711``; empty: in the shell that runs doctor."""
    launch_line: str = ""
    launchers: tuple[str, ...] = ()
    """Of the launch line, outer to inner."""
    nodes: RankCount | None = None
    """Hosts that the launch line is for; of an elastic launch the least."""
    max_nodes: RankCount | None = None
    outer_nodes: RankCount | None = None
    """Hosts on which an outer launcher starts the one that numbers the ranks."""
    node_rank: RankCount | None = None
    """Number of the host that the launch line is for, where it says one."""
    starts_here: bool = False
    """The launcher was given no hosts, by the line or by a scheduler: all its ranks are on the host that calls it."""
    store_by_name: bool = False
    """torchrun's agents find out by the hosts' own names which of them opens the store: ``--rdzv-backend c10d``."""
    announces_name: bool = False
    """The agent of rank 0 tells the others its host's full name, at which the ranks meet; not with ``--local-addr``."""
    refused: tuple[tuple[str, str, str, str], ...] = ()
    """Options of the launch line that their launcher refuses: launcher, option, value, what was expected."""
    unresolved: dict[str, str] = {}
    """Variables that the job has with a value that only a shell can compute: the source text by name."""
    time_limit_s: Seconds | None = None
    """The time limit that the job script asks the scheduler for, or the launch line sets for its step."""
    time_left_s: Seconds | None = None
    """Until the scheduler ends the job that doctor runs in, where the training is to run in it, too."""

    def of_one_host(self) -> LaunchOptions:
        """The same where one host of the job is checked by itself: the job's number of hosts cannot be compared."""
        return msgspec.structs.replace(
            self, nodes=None, max_nodes=None, outer_nodes=None, node_rank=None, starts_here=False
        )


class ProbeInputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values that probes on the hosts receive; an ``ask`` function gets them as a dict."""

    hosts: tuple[str, ...] = ()
    """The names of all hosts of the fleet."""
    python: str = ""
    master_addr: str = ""
    announces_name: bool = False
    """As in `LaunchOptions`: each host's full name is looked up, too."""
    ports: tuple[Port, ...] = ()
    """Ports that the job will listen on."""
    rank_table: str = ""
    """Absolute path of the rank table."""
    folders: tuple[str, ...] = ()
    """Folders that the job writes to, as its environment has them: TMPDIR, HOME, the working folder."""
    temporary_folder: str = ""
    """The job's TMPDIR, which is one of them: absolute; empty where none is set."""
    paths: tuple[str, ...] = ()
    """Files and folders to compare among hosts: absolute."""
    job: str = ""
    """The Slurm job, and its restart count, that `doctor node` ran in."""


class SavedRankTable(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The rank table as a run keeps it: its ``text``, or the ``error`` for which it could not be read."""

    path: str = ""
    text: str = ""
    error: str = ""
    link_target: str = ""
    """Where the path leads when it is a symbolic link."""

    def __bool__(self) -> bool:
        """False where the job has no rank table."""
        return bool(self.path or self.text or self.error)
